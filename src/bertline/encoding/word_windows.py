"""Encoding of tagged words: token windows of long sentences, and the position of each word in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bertline.encoding.sequences import (
    INPUT_NAMES,
    Sequences,
    padded,
    padded_sequences,
    scoring_batches,
    tensors,
    window_starts,
)
from bertline.encoding.token_marks import with_marks
from bertline.foundation.errors import DataError
from bertline.foundation.labels import IGNORED_LABEL
from bertline.tasks.stored_rows import TaggedRows

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bertline.tokenization.tokenizer import Tokenizer
    from bertline.training.devices import Machine


@dataclass(frozen=True, slots=True)
class EncodedWords:
    """N rows split into V windows of at most W words. The T words of all rows are numbered consecutively."""

    sequences: Sequences
    """The V windows."""
    num_words: NDArray[np.int64]
    """Number of words that start in each window [V]."""
    words: NDArray[np.int64]
    """Indices of those words [V, W], padded with 0."""
    places: NDArray[np.int64]
    """Position in the window of the first subword of each word [V, W], padded with 0."""
    labels: NDArray[np.int64]
    """Label ids of the words [V, W], padded with `IGNORED_LABEL`."""
    taken: NDArray[np.bool_]
    """Whether the word is predicted from this window [V, W]; true in exactly one window for each word."""
    row_starts: NDArray[np.int64]
    """Index of the first word of each row [N + 1]; the last entry is T."""
    words_of_tokens: NDArray[np.int64]
    """Column of `words` that each token belongs to [V, S]; -1 for [CLS], [SEP], padding, and tokens at the start of a
    window whose word starts before it."""

    def batch(self, indices: NDArray[np.integer]) -> dict[str, Tensor]:
        """Return the windows at `indices` as one batch.

        Returns:
            The tensors of `Sequences.batch`, `word_places` and `word_labels` [B, W], `num_words` [B] and
            `words_of_tokens` [B, S].
        """
        most = max(int(self.num_words[indices].max()), 1)
        sequences = self.sequences.batch(indices)
        longest = sequences["input_ids"].shape[1]
        return {
            **sequences,
            **tensors(
                words_of_tokens=self.words_of_tokens[indices, :longest],
                word_places=self.places[indices, :most],
                word_labels=self.labels[indices, :most],
                num_words=self.num_words[indices],
            ),
        }


def encode_words(
    rows: TaggedRows,
    labels: Sequence[str],
    tokenizer: Tokenizer,
    *,
    max_length: int,
    overlap: int,
    mark: Callable[[str], int] | None = None,
) -> EncodedWords:
    """Tokenize each word into subwords, and split each row into windows `[CLS] subwords [SEP]` of at most `max_length`.

    Neighbouring windows share `overlap` tokens. A word is predicted from the window in which its distance to the nearer
    edge is largest, among the windows that contain all of it (among all windows that it starts in, if none does). The
    start and the end of the row do not count as edges.

    Args:
        overlap: Number of tokens that neighbouring windows share; less than a window holds.
        mark: Mark of a word (`token_marks`), given to its tokens in each window that it starts in; None: no marks.

    Raises:
        DataError: A word has no token: the tokenizer's cleaning removes all of it, as it does with control characters.
    """
    layout = tokenizer.single
    room = layout.room(max_length, overlap=overlap)
    token_ids_of = token_ids_in_rows(rows.words, tokenizer)
    for name, row, of_words in zip(rows.ids, rows.words, token_ids_of, strict=True):
        if [] in of_words:
            number = of_words.index([])
            raise DataError(
                f"{name}: word {number + 1} of {len(row)}, {row[number]!a}, has no token: the tokenizer's cleaning "
                "removes all of it. A tag needs a token to stand at; take the word and its tag out of the row."
            )
    numbers = {label: number for number, label in enumerate(labels)}
    row_starts = np.cumsum([0, *(len(words) for words in rows.words)]).astype(np.int64)
    windows = [
        window
        for first_word, tokens in zip(row_starts, token_ids_of, strict=False)
        for window in _windows(tokens, int(first_word), room, overlap)
    ]
    token_ids = [layout.sequence(ids) for ids, *_ in windows]
    sequences = padded_sequences(token_ids, [len(ids) for ids in token_ids], pad_id=tokenizer.pad_id)
    # At least one column, even where no window has a word.
    words, places, taken = (padded([window[part] for window in windows], 0, least=1) for part in (1, 2, 3))
    num_words = np.array([len(window[1]) for window in windows], dtype=np.int64)
    inside = np.arange(words.shape[1]) < num_words[:, None]
    all_labels = np.array([numbers[tag] for tags in rows.tags for tag in tags], dtype=np.int64)
    word_labels = np.full(inside.shape, IGNORED_LABEL, dtype=np.int64)
    word_labels[inside] = all_labels[words[inside]]
    words_of_tokens = _words_of_tokens(sequences, places, inside)
    if mark is not None:
        marks = np.array([mark(word) for of_row in rows.words for word in of_row], dtype=np.int64)
        of_tokens = np.take_along_axis(np.append(marks, 0)[words], np.maximum(words_of_tokens, 0), axis=1)
        sequences = with_marks(sequences, np.where(words_of_tokens >= 0, of_tokens, 0))
    return EncodedWords(
        sequences=sequences,
        num_words=num_words,
        words=words,
        places=places,
        labels=word_labels,
        taken=taken.astype(bool),
        row_starts=row_starts,
        words_of_tokens=words_of_tokens,
    )


def _words_of_tokens(sequences: Sequences, places: NDArray[np.int64], inside: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Compute `EncodedWords.words_of_tokens`; a word extends from its first token to that of the next word."""
    begun = np.full(sequences.input_ids.shape, -1, dtype=np.int64)
    windows, columns = np.nonzero(inside)
    begun[windows, places[windows, columns]] = columns
    begun = np.maximum.accumulate(begun, axis=1)
    begun[np.arange(sequences.input_ids.shape[1]) >= sequences.lengths[:, None] - 1] = -1  # [SEP] and padding
    return begun


_Window = tuple[list[int], NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]
"""Token ids of a window, and its words: their indices, their positions, and whether they are predicted from it."""


def token_ids_of_words(rows: Sequence[Sequence[str]], tokenizer: Tokenizer) -> dict[str, list[int]]:
    """Return the token ids of each distinct word of the rows, as they are behind a space."""
    different = sorted({word for words in rows for word in words})
    texts = different if tokenizer.is_wordpiece else [f" {word}" for word in different]
    return dict(zip(different, tokenizer.encode_literally(texts), strict=True))


def token_ids_in_rows(rows: Sequence[Sequence[str]], tokenizer: Tokenizer) -> list[list[list[int]]]:
    """Return the token ids of each word of each row; none for a word of which the tokenizer's cleaning removes all."""
    if tokenizer.is_wordpiece:
        # Tokenization does not depend on context across spaces, so each distinct word is tokenized once.
        ids_of = token_ids_of_words(rows, tokenizer)
        return [[ids_of[word] for word in words] for words in rows]
    # Others see the space before a word, and the first word of a text has none: a row is tokenized as a text, and the
    # last character of a token tells its word.
    found = []
    texts = [" ".join(words) for words in rows]
    for words, (ids, places) in zip(rows, tokenizer.encode_with_places(texts), strict=True):
        ends = np.cumsum([len(word) + 1 for word in words])
        of_words: list[list[int]] = [[] for _ in words]
        for token, (begin, end) in zip(ids, places, strict=True):
            of_words[int(np.searchsorted(ends, max(end - 1, begin), side="right"))].append(token)
        found.append(of_words)
    return found


def _windows(word_tokens: list[list[int]], first_word: int, room: int, overlap: int) -> list[_Window]:
    """Split one row into windows, its words numbered from `first_word`; a row without words is one empty window."""
    tokens = [token for word in word_tokens for token in word]
    borders = np.cumsum([0, *(len(word) for word in word_tokens)]).astype(np.int64)
    begins, ends = borders[:-1], borders[1:]
    words = np.arange(len(word_tokens)) + first_word
    starts = window_starts(len(tokens), room, overlap)
    context = np.array([_context(begins, ends, start, room, len(tokens)) for start in starts])
    best = context.argmax(axis=0)
    return [
        (tokens[start : start + room], words[here], begins[here] - start + 1, best[here] == number)
        for number, (start, here) in enumerate(zip(starts, context >= 0, strict=True))
    ]


def _context(
    begins: NDArray[np.int64], ends: NDArray[np.int64], start: int, room: int, num_tokens: int
) -> NDArray[np.int64]:
    """Return the distance of each word's first subword from the nearer edge of a window; -1 outside the window.

    `num_tokens` + 1 is added for a word entirely inside the window, so that it ranks above any that is not.
    """
    end = start + room
    left = begins - start if start else np.full_like(begins, num_tokens)
    right = end - 1 - begins if end < num_tokens else np.full_like(begins, num_tokens)
    whole = np.where(ends <= end, num_tokens + 1, 0)
    return np.where((begins >= start) & (begins < end), np.minimum(left, right) + whole, -1)


def outputs_of_words(
    model: nn.Module,
    encoded: EncodedWords,
    machine: Machine,
    width: int,
    read: Callable[[Any, dict[str, Tensor]], Tensor],
) -> NDArray[np.float32]:
    """Compute what a model gives for all words, [T, width], each in the window with the most context around it.

    Args:
        read: Reduces the outputs of a batch (see `EncodedWords.batch`) to those of its words, [B, W, width], in fp32.
    """
    from bertline.training.devices import evaluating

    found = np.zeros((int(encoded.row_starts[-1]), width), dtype=np.float32)
    with evaluating(model, machine) as forward:
        for indices, _ in scoring_batches(encoded.sequences, max_tokens=machine.scoring_tokens):
            batch = {name: tensor.to(machine.device) for name, tensor in encoded.batch(indices).items()}
            of_words = read(forward(*(batch[name] for name in INPUT_NAMES)), batch).cpu().numpy()
            taken = encoded.taken[indices, : of_words.shape[1]]
            found[encoded.words[indices, : of_words.shape[1]][taken]] = of_words[taken]
    return found


def word_means(values: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """Mean-pool the vectors of each word's tokens, [B, S, K] to [B, W, K], in fp32 (see `EncodedWords.batch`)."""
    import torch

    columns = torch.arange(batch["word_places"].shape[1], device=values.device)
    is_of_word = (batch["words_of_tokens"].to(values.device)[:, None, :] == columns[:, None]).float()  # [B, W, S]
    # Matrix product instead of a scatter: its gradient is deterministic on a GPU. Autocast would compute it in bf16.
    with torch.autocast(values.device.type, enabled=False):
        return is_of_word @ values.float() / is_of_word.sum(2, keepdim=True).clamp(min=1)
