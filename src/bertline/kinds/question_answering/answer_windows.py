"""Encoding of questions with the windows of their contexts; an answer is a span of context tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertline.kinds.question_answering.config import QuestionAnsweringTaskConfig
from bertline.tasks.stored_rows import QuestionRows
from bertline.tokenization.tokenizer import Layout, Tokenizer

NOT_TRAINED = -1
"""Label of a question whose answer has no token (a control character, for example); it is not trained on."""


@dataclass(frozen=True, slots=True)
class Contexts:
    """Distinct contexts; the T tokens of all of them are concatenated."""

    texts: list[str]
    ids: NDArray[np.int32]
    """Token ids [T]."""
    places: NDArray[np.int32]
    """Start and end of each token in its text, in characters, [T, 2]."""
    bounds: NDArray[np.int64]
    """Offsets [contexts + 1]: the tokens of context c are bounds[c] up to bounds[c + 1]."""


@dataclass(frozen=True, slots=True)
class EncodedQuestions:
    """N questions in W windows `[CLS] question [SEP] part of the context [SEP]`, those of a question in order.

    Windows are assembled batch by batch, so that a hundred thousand questions take little more memory than their text.
    """

    contexts: Contexts
    questions: list[list[int]]
    """Token ids of each question, truncated to `max_question_length`."""
    context_of: NDArray[np.int64]
    """Index of each question's context [N]."""
    rows: NDArray[np.int64]
    """Index of each window's question [W]."""
    windows: NDArray[np.int64]
    """Token ranges of the windows [W, 4], as returned by `windows_of`."""
    labels: NDArray[np.int64]
    """Positions of the answer's first and last token [W, 2]; 0, [CLS], if the window does not contain all of it."""
    lengths: NDArray[np.int64]
    """Number of tokens of each sequence [W]."""
    cut: NDArray[np.bool_]
    """Whether the question was truncated [N]."""
    layout: Layout
    """Special tokens around question and context."""
    pad_id: int

    def batch(self, indices: NDArray[np.integer]) -> dict[str, Tensor]:
        """Return the windows at `indices` as one batch, padded to the longest among them.

        Returns:
            input_ids, token_type_ids and attention_mask [B, S], `in_context` [B, S] (true at tokens of the context)
            and `labels` [B, 2].
        """
        lengths = self.lengths[indices]
        shape = (len(indices), int(lengths.max()))
        input_ids = np.full(shape, self.pad_id, dtype=np.int64)
        firsts = self.first_positions(indices)
        lasts = lengths - len(self.layout.after)
        for place, index in enumerate(indices):
            row = self.rows[index]
            begin = self.contexts.bounds[self.context_of[row]]
            first, stop = self.windows[index, :2]
            before_context = [*self.layout.before, *self.questions[row], *self.layout.between]
            input_ids[place, : firsts[place]] = before_context
            input_ids[place, firsts[place] : lasts[place]] = self.contexts.ids[begin + first : begin + stop]
            input_ids[place, lasts[place] : lengths[place]] = self.layout.after
        positions = np.arange(shape[1])
        in_second = (positions >= firsts[:, None]) & (positions < lengths[:, None])
        return {
            "input_ids": torch.from_numpy(input_ids),
            "token_type_ids": torch.from_numpy(self.layout.second_type * in_second.astype(np.int64)),
            "attention_mask": torch.from_numpy((positions < lengths[:, None]).astype(np.int64)),
            "in_context": torch.from_numpy(in_second & (positions < lasts[:, None])),
            "labels": torch.from_numpy(self.labels[indices]),
        }

    def first_positions(self, indices: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the position in the sequence of each window's first context token."""
        return self.lengths[indices] - len(self.layout.after) - (self.windows[indices, 1] - self.windows[indices, 0])


def encode_questions(rows: QuestionRows, tokenizer: Tokenizer, config: QuestionAnsweringTaskConfig) -> EncodedQuestions:
    """Encode questions with their contexts, split into windows that share `window_overlap` tokens (`run_squad.py`)."""
    contexts, context_of = _contexts(rows.contexts, tokenizer)
    whole = tokenizer.encode_literally(rows.questions)
    questions = [ids[: config.max_question_length] for ids in whole]
    layout = tokenizer.pair
    shortest = layout.room(config.max_length, question=config.max_question_length, overlap=config.window_overlap)
    num_before = len(layout.before) + len(layout.between)
    windows: list[NDArray[np.int64]] = []
    labels: list[NDArray[np.int64]] = []
    for row, question in enumerate(questions):
        begin, stop = contexts.bounds[context_of[row]], contexts.bounds[context_of[row] + 1]
        room = shortest + config.max_question_length - len(question)
        windows.append(windows_of(int(stop - begin), room, config.window_overlap))
        answer = _answer_tokens(contexts.places[begin:stop], rows, row)
        labels.append(_labels(windows[-1], answer, len(question) + num_before))
    counts = np.array([len(of_row) for of_row in windows], dtype=np.int64)
    all_windows = np.concatenate(windows) if windows else np.zeros((0, 4), dtype=np.int64)
    question_lengths = np.repeat(np.array([len(question) for question in questions], dtype=np.int64), counts)
    return EncodedQuestions(
        contexts=contexts,
        questions=questions,
        context_of=context_of,
        rows=np.repeat(np.arange(len(questions)), counts),
        windows=all_windows,
        labels=np.concatenate(labels) if labels else np.zeros((0, 2), dtype=np.int64),
        lengths=question_lengths + layout.num_special + all_windows[:, 1] - all_windows[:, 0],
        cut=np.array([len(ids) > config.max_question_length for ids in whole], dtype=np.bool_),
        layout=layout,
        pad_id=tokenizer.pad_id,
    )


@lru_cache(maxsize=4096)
def windows_of(num_tokens: int, room: int, overlap: int) -> NDArray[np.int64]:
    """Split a context into windows.

    Args:
        num_tokens: Number of tokens of the context.
        room: Maximum number of context tokens in a window; more than `overlap`.
        overlap: Number of tokens that neighbouring windows share.

    Returns:
        Token ranges [windows, 4]: start and end (exclusive) of the window, then of the part whose tokens have more
        context in this window than in any other. The context of a token is the smaller number of tokens to its left
        and right; the longer window wins a tie (`_check_is_max_context` of the reference code).

    Example:
        >>> windows_of(10, room=6, overlap=2).tolist()
        [[0, 6, 0, 5], [4, 10, 5, 10]]
    """
    step = room - overlap
    firsts = np.arange(0, max(num_tokens - overlap, 1), step)
    stops = np.minimum(firsts + room, num_tokens)
    tokens = np.arange(num_tokens)
    left, right = tokens - firsts[:, None], stops[:, None] - 1 - tokens
    context = np.minimum(left, right)
    scores = np.where(context >= 0, context + 0.01 * (stops - firsts)[:, None], -np.inf)
    if num_tokens == 0:
        return np.zeros((1, 4), dtype=np.int64)
    best = scores.argmax(axis=0)
    best_firsts, best_stops = (np.searchsorted(best, np.arange(len(firsts)), side=side) for side in ("left", "right"))
    return np.stack([firsts, stops, best_firsts, best_stops], axis=1)


def _contexts(texts: Sequence[str], tokenizer: Tokenizer) -> tuple[Contexts, NDArray[np.int64]]:
    """Encode the distinct texts; also return the index of each given text among them."""
    numbers: dict[str, int] = {}
    context_of = np.array([numbers.setdefault(text, len(numbers)) for text in texts], dtype=np.int64)
    encoded = tokenizer.encode_with_places(list(numbers))
    bounds = np.concatenate([[0], np.cumsum([len(ids) for ids, _ in encoded], dtype=np.int64)])
    ids = [np.array(ids, dtype=np.int32) for ids, _ in encoded]
    places = [np.array(places, dtype=np.int32).reshape(-1, 2) for _, places in encoded]
    contexts = Contexts(
        texts=list(numbers),
        ids=np.concatenate(ids) if ids else np.zeros(0, dtype=np.int32),
        places=np.concatenate(places) if places else np.zeros((0, 2), dtype=np.int32),
        bounds=bounds.astype(np.int64),
    )
    return contexts, context_of


def _answer_tokens(places: NDArray[np.int32], rows: QuestionRows, row: int) -> tuple[int, int] | None:
    """Return the first and last token that overlap the first gold answer; None if the question has no answer."""
    if not rows.answers[row]:
        return None
    start = rows.starts[row][0]
    stop = start + len(rows.answers[row][0])
    first = int(np.searchsorted(places[:, 1], start, side="right"))
    last = int(np.searchsorted(places[:, 0], stop, side="left")) - 1
    return (first, last) if first <= last else (NOT_TRAINED, NOT_TRAINED)


def _labels(windows: NDArray[np.int64], answer: tuple[int, int] | None, first_position: int) -> NDArray[np.int64]:
    """Return the labels of one question's windows [windows, 2]; see `EncodedQuestions.labels`."""
    labels = np.zeros((len(windows), 2), dtype=np.int64)
    if answer is None:
        return labels
    if answer[0] == NOT_TRAINED:
        return labels + NOT_TRAINED
    whole = (windows[:, 0] <= answer[0]) & (answer[1] < windows[:, 1])
    labels[whole] = np.array(answer) - windows[whole, :1] + first_position
    return labels
