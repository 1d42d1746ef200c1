"""Words as token ids: windows of long sentences, and where in them each word begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertline.finetuning.encoding import Sequences, assemble
from bertline.finetuning.token_marks import with_marks
from bertline.foundation.errors import ConfigError
from bertline.tasks.stored_rows import TaggedRows
from bertline.tokenization.tokenizer import Tokenizer

NO_LABEL = -100
"""Label of a padded word; what PyTorch's losses ignore."""


@dataclass(frozen=True, slots=True)
class EncodedWords:
    """N rows, read in V windows of W words at most. Words are numbered through all rows; T of them."""

    sequences: Sequences
    """[V]."""
    num_words: NDArray[np.int64]
    """[V], words that begin in each window."""
    words: NDArray[np.int64]
    """[V, W], the numbers of those words; 0 behind the last."""
    places: NDArray[np.int64]
    """[V, W], where in the window their first pieces stand; 0 behind the last."""
    labels: NDArray[np.int64]
    """[V, W], numbers of labels; `NO_LABEL` behind the last."""
    taken: NDArray[np.bool_]
    """[V, W], whether the word is predicted from this window: each word that has pieces is so in exactly one."""
    row_starts: NDArray[np.int64]
    """[N + 1], number of each row's first word; the last entry is T."""
    readable: NDArray[np.bool_]
    """[T], false for a word of which BERT's cleaning leaves nothing."""
    words_of_tokens: NDArray[np.int64]
    """[V, S], the column of `words` that a token is of; -1 for [CLS], [SEP], padding, and tokens at the start of a
    window whose word begins before it."""

    def batch(self, indices: NDArray[np.integer]) -> dict[str, Tensor]:
        """These windows: what `Sequences.batch` gives, and `word_places`, `word_labels` [B, W], `num_words` [B] and
        `words_of_tokens` [B, S]."""
        most = max(int(self.num_words[indices].max()), 1)
        sequences = self.sequences.batch(indices)
        longest = sequences["input_ids"].shape[1]
        return {
            **sequences,
            "words_of_tokens": torch.from_numpy(self.words_of_tokens[indices, :longest]),
            "word_places": torch.from_numpy(self.places[indices, :most]),
            "word_labels": torch.from_numpy(self.labels[indices, :most]),
            "num_words": torch.from_numpy(self.num_words[indices]),
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
    """Cut each word into pieces, and each row into windows `[CLS] pieces [SEP]` of at most `max_length` tokens.

    Neighbouring windows share `overlap` tokens. Of the windows that hold a whole word (of all, if none does), it is
    predicted from the one whose nearer edge is farthest; a window that begins or ends with the row has no edge there.

    Args:
        rows: The words and their tags.
        labels: All tags, in the order of the head.
        tokenizer: The model's own.
        max_length: Maximum tokens of a window, [CLS] and [SEP] included.
        overlap: Tokens that neighbouring windows share.
        mark: Gives the mark of a word (`token_marks`), which its tokens get in each window that it begins in; None
            marks nothing.

    Raises:
        ConfigError: Windows that share so much never come to the end of a long row.
    """
    room = max_length - 2
    if overlap >= room:
        raise ConfigError(
            f"window_overlap is {overlap}, but a window of max_length {max_length} holds {room} tokens beside "
            "[CLS] and [SEP]. Make window_overlap smaller than that."
        )
    ids_of = token_ids_of_words(rows, tokenizer)
    numbers = {label: number for number, label in enumerate(labels)}
    row_starts = np.cumsum([0, *(len(words) for words in rows.words)]).astype(np.int64)
    windows: list[_Window] = []
    for row, words in enumerate(rows.words):
        pieces = [ids_of[word] for word in words]
        windows += _windows(pieces, int(row_starts[row]), room, overlap)
    all_labels = np.array([numbers[tag] for tags in rows.tags for tag in tags], dtype=np.int64)
    inside, padded = _columns(windows)
    word_labels = np.full(inside.shape, NO_LABEL, dtype=np.int64)
    word_labels[inside] = all_labels[padded["words"][inside]]
    token_ids = [[tokenizer.cls_id, *window.pieces, tokenizer.sep_id] for window in windows]
    sequences = assemble(token_ids, [len(ids) for ids in token_ids], pad_id=tokenizer.pad_id)
    words_of_tokens = _words_of_tokens(sequences, padded["places"], inside)
    if mark is not None:
        marks = np.array([mark(word) for words in rows.words for word in words], dtype=np.int64)
        sequences = with_marks(sequences, _marks_of_tokens(marks, padded["words"], words_of_tokens))
    return EncodedWords(
        sequences=sequences,
        num_words=inside.sum(axis=1),
        words=padded["words"],
        places=padded["places"],
        labels=word_labels,
        taken=padded["taken"].astype(bool),
        row_starts=row_starts,
        readable=np.array([bool(ids_of[word]) for words in rows.words for word in words], dtype=bool),
        words_of_tokens=words_of_tokens,
    )


def _columns(windows: Sequence[_Window]) -> tuple[NDArray[np.bool_], dict[str, NDArray[np.int64]]]:
    """Which columns [V, W] hold a word, and the words' numbers, places and `taken` there; 0 elsewhere."""
    num_words = np.array([len(window.words) for window in windows], dtype=np.int64)
    inside = np.arange(max(int(num_words.max(initial=0)), 1)) < num_words[:, None]
    columns = {name: np.zeros(inside.shape, dtype=np.int64) for name in ("words", "places", "taken")}
    for name, values in columns.items():
        values[inside] = [value for window in windows for value in getattr(window, name)]
    return inside, columns


def _words_of_tokens(sequences: Sequences, places: NDArray[np.int64], inside: NDArray[np.bool_]) -> NDArray[np.int64]:
    """See `EncodedWords`; a word has the tokens from its place to the next word's."""
    begun = np.full(sequences.input_ids.shape, -1, dtype=np.int64)
    windows, columns = np.nonzero(inside)
    begun[windows, places[windows, columns]] = columns
    begun = np.maximum.accumulate(begun, axis=1)
    begun[np.arange(sequences.input_ids.shape[1]) >= sequences.lengths[:, None] - 1] = -1  # [SEP] and padding
    return begun


def _marks_of_tokens(
    marks: NDArray[np.int64], words: NDArray[np.int64], words_of_tokens: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Each token's mark [V, S]: that of its word, out of marks [T]; 0 where it has none. See `EncodedWords`."""
    of_columns = np.append(marks, 0)[words]  # The 0 is what the columns of no word read when T is 0.
    of_tokens = np.take_along_axis(of_columns, np.maximum(words_of_tokens, 0), axis=1)
    return np.where(words_of_tokens >= 0, of_tokens, 0)


@dataclass(frozen=True, slots=True)
class _Window:
    pieces: list[int]
    words: NDArray[np.int64]
    places: NDArray[np.int64]
    taken: NDArray[np.bool_]


def token_ids_of_words(rows: TaggedRows, tokenizer: Tokenizer) -> dict[str, list[int]]:
    """The token ids of each distinct word of the rows."""
    # Nothing BERT does to a text looks across a space, so each different word is cut once.
    different = sorted({word for words in rows.words for word in words})
    return dict(zip(different, tokenizer.encode_literally(different), strict=True))


def _windows(word_pieces: list[list[int]], first_word: int, room: int, overlap: int) -> list[_Window]:
    """The windows of one row, the words numbered from `first_word`; a row without a piece is one empty window."""
    pieces = [piece for word in word_pieces for piece in word]
    begins = np.cumsum([0, *(len(word) for word in word_pieces)])[:-1].astype(np.int64)
    readable = np.array([bool(word) for word in word_pieces], dtype=bool)
    ends = begins[readable] + np.array([len(word) for word in word_pieces if word], dtype=np.int64)
    begins, words = begins[readable], np.flatnonzero(readable) + first_word
    starts = [0]
    while starts[-1] + room < len(pieces):
        starts.append(starts[-1] + room - overlap)
    context = np.array([_context(begins, ends, start, room, len(pieces)) for start in starts])
    best = context.argmax(axis=0)
    windows = []
    for number, start in enumerate(starts):
        here = context[number] >= 0
        windows.append(
            _Window(pieces[start : start + room], words[here], begins[here] - start + 1, best[here] == number)
        )
    return windows


def _context(
    begins: NDArray[np.int64], ends: NDArray[np.int64], start: int, room: int, num_pieces: int
) -> NDArray[np.int64]:
    """How far each word's first subword is from the nearer edge of a window; -1 where it is outside of it.

    A word that is whole in the window has more than any that is not: further by `num_pieces` + 1.
    """
    unlimited = num_pieces
    end = start + room
    left = begins - start if start else np.full_like(begins, unlimited)
    right = end - 1 - begins if end < num_pieces else np.full_like(begins, unlimited)
    whole = np.where(ends <= end, unlimited + 1, 0)
    return np.where((begins >= start) & (begins < end), np.minimum(left, right) + whole, -1)
