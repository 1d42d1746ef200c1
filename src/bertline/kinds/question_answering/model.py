"""Extractive question answering: start and end of the answer in its context (paper, sections 4.2 and 4.3)."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from bertline.finetuning.encoding import INPUT_NAMES, scoring_indices
from bertline.finetuning.task_kind import Batch, Calibration, LossOptions, Statistics, TaskKind
from bertline.kinds.question_answering.config import QuestionAnsweringTaskConfig
from bertline.modeling.heads import AnswerLogits
from bertline.modeling.losses import softmax_divergence
from bertline.tasks.metrics.answers import answer_scores, best_no_answer_threshold
from bertline.tasks.stored_rows import QuestionRows
from bertline.tokenization.tokenizer import Layout, Tokenizer
from bertline.training.devices import Machine
from bertline.training.probe import evaluating

# Encoding of questions with the windows of their contexts; an answer is a span of context tokens.

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


NO_ANSWER_THRESHOLD = "no_answer_threshold"
"""Calibration key: an answer is withheld if the null score exceeds its score by more than this threshold."""
NO_SPAN = -1e9
"""Score of a window without an allowed answer span."""


@dataclass(frozen=True, slots=True)
class AnswerPredictions:
    """Best answer to each of N questions, and its null score."""

    texts: list[str]
    """Answer texts, substrings of the contexts; empty if the context has no tokens."""
    starts: NDArray[np.int64]
    """Start of each answer in characters of its context [N]."""
    scores: NDArray[np.float64]
    """Start logit plus end logit of each answer [N]."""
    null_scores: NDArray[np.float64]
    """Start logit plus end logit of [CLS] [N]; the minimum over the question's windows."""
    probabilities: NDArray[np.float64]
    """Start probability times end probability of each answer [N], over [CLS] and the context tokens of its window."""


class QuestionAnswering(TaskKind[QuestionRows, EncodedQuestions, AnswerPredictions]):
    """Predicts start and end of the answer, each with a softmax over the context tokens and [CLS].

    Notes:
        The reference code allows start and end on tokens of the question and discards those answers afterwards. Here
        question tokens get no probability, as in the paper (section 4.2: "over all of the words in the paragraph").
        The reference code searches the best span among the 20 best starts and ends; here all spans are searched.
    """

    rows_class = QuestionRows
    head = "answers"

    def encode(self, rows: QuestionRows, tokenizer: Tokenizer) -> EncodedQuestions:
        return encode_questions(rows, tokenizer, self.config)

    def lengths(self, encoded: EncodedQuestions) -> NDArray[np.int64]:
        return encoded.lengths

    def num_cut(self, encoded: EncodedQuestions) -> int:
        """Return the number of truncated questions; contexts are split into windows."""
        return int(encoded.cut.sum())

    def trained_on(self, encoded: EncodedQuestions) -> NDArray[np.int64]:
        return np.flatnonzero(encoded.labels[:, 0] != NOT_TRAINED)

    def soft_targets(self, model: nn.Module, encoded: EncodedQuestions, machine: Machine) -> NDArray[np.float32]:
        """Return the logits of start and end at each token, [W, S, 2]."""
        found = np.zeros((len(encoded.rows), int(encoded.lengths.max(initial=0)), 2), dtype=np.float32)
        with evaluating(model, machine) as forward:
            for indices in scoring_indices(encoded.lengths, max_tokens=machine.scoring_tokens):
                batch = encoded.batch(indices)
                logits = torch.stack(forward(*(batch[name].to(machine.device) for name in INPUT_NAMES)), dim=-1)
                found[indices, : logits.shape[1]] = logits.float().cpu().numpy()
        return found

    def soft_loss(self, outputs: AnswerLogits, teacher: Tensor, batch: Batch, temperature: float) -> Tensor:
        """Compute the mean divergence from the teacher's distributions of start and end."""
        forbidden = ~_with_cls(batch["in_context"])[..., None]
        logits = torch.stack(outputs, dim=-1).float().masked_fill(forbidden, NO_SPAN)
        theirs = teacher[:, : logits.shape[1]].masked_fill(forbidden, NO_SPAN)
        return softmax_divergence(logits.transpose(1, 2), theirs.transpose(1, 2), temperature).mean()

    def hard_loss(self, model: nn.Module, outputs: AnswerLogits, batch: Batch, options: LossOptions) -> Tensor:
        """Compute the mean of the cross-entropies of start and end."""
        allowed = _with_cls(batch["in_context"])
        start, end = batch["labels"].unbind(-1)
        return (
            _cross_entropy(outputs.start, start, allowed, options.label_smoothing)
            + _cross_entropy(outputs.end, end, allowed, options.label_smoothing)
        ) / 2

    def predict(self, model: nn.Module, encoded: EncodedQuestions, machine: Machine) -> AnswerPredictions:
        found = np.zeros((len(encoded.rows), 3), dtype=np.float64)
        spans = np.zeros((len(encoded.rows), 2), dtype=np.int64)
        with evaluating(model, machine) as forward:
            for indices in scoring_indices(encoded.lengths, max_tokens=machine.scoring_tokens):
                on_device = {name: tensor.to(machine.device) for name, tensor in encoded.batch(indices).items()}
                logits = AnswerLogits(*forward(*(on_device[name] for name in INPUT_NAMES)))
                firsts = encoded.first_positions(indices)
                windows = encoded.windows[indices]
                may_start = torch.from_numpy(windows[:, 2:] - windows[:, :1] + firsts[:, None]).to(machine.device)
                values, positions = best_spans(
                    logits, on_device["in_context"], may_start, max_length=self.config.max_answer_length
                )
                found[indices] = values.double().cpu().numpy()
                spans[indices] = positions.cpu().numpy() - firsts[:, None] + windows[:, :1]
        return _best_of_windows(encoded, found, spans)

    def calibrate(self, rows: QuestionRows, predictions: AnswerPredictions) -> Calibration:
        has_answer = np.array([bool(answers) for answers in rows.answers], dtype=np.bool_)
        if has_answer.all():
            return {}
        column = ("f1", "exact_match").index(self.config.metric)
        scores = np.array(_pairs_of_scores(predictions.texts, rows.answers))[:, column]
        margins = predictions.null_scores - predictions.scores
        return {NO_ANSWER_THRESHOLD: best_no_answer_threshold(scores, has_answer, margins)}

    def statistics(self, rows: QuestionRows, predictions: AnswerPredictions, calibration: Calibration) -> Statistics:
        """Return F1, exact match, and whether the question has an answer, [N, 3]."""
        scores = np.array(_pairs_of_scores(predictions.texts, rows.answers)).reshape(-1, 2)
        has_answer = np.array([bool(answers) for answers in rows.answers], dtype=np.bool_).reshape(-1, 1)
        # As in the official script: withheld answers are correct exactly for questions without an answer.
        scores = np.where(_withheld(predictions, calibration)[:, None], ~has_answer, scores)
        return np.concatenate([scores, has_answer], axis=1)

    def scores(self, statistics: Statistics) -> dict[str, float]:
        has_answer = statistics[:, 2] == 1
        groups = {"": np.ones(len(statistics), dtype=np.bool_)}
        if not has_answer.all():
            groups.update({"has_answer_": has_answer, "no_answer_": ~has_answer})
        return {
            f"{group}{name}": float(statistics[members, column].mean())
            for group, members in groups.items()
            for column, name in enumerate(("f1", "exact_match"))
            if members.any()
        }

    def table(self, rows: QuestionRows, predictions: AnswerPredictions, calibration: Calibration) -> pa.Table:
        """See `TaskKind.table`. An empty text means "no answer"; its score does not depend on the threshold."""
        given = given_answers(predictions, calibration)
        no_answer = 1 / (1 + np.exp(np.clip(predictions.scores - predictions.null_scores, -50, 50)))
        return pa.table(
            {
                "id": rows.ids,
                "title": rows.titles,
                "question": rows.questions,
                "context": rows.contexts,
                "gold": [answers[0] if answers else "" for answers in rows.answers],
                "predicted": given,
                "score": np.where([bool(text) for text in given], predictions.probabilities, no_answer),
                "correct": self.statistics(rows, predictions, calibration)[:, 0],
            }
        )

    def is_degenerate(self, rows: QuestionRows, predictions: AnswerPredictions, calibration: Calibration) -> bool:
        return len(rows) > 1 and len(set(given_answers(predictions, calibration))) == 1


def given_answers(predictions: AnswerPredictions, calibration: Calibration) -> list[str]:
    """Return the predicted answers, empty for "no answer"; without a threshold, none is withheld."""
    withheld = _withheld(predictions, calibration)
    return ["" if nothing else text for text, nothing in zip(predictions.texts, withheld, strict=True)]


def _withheld(predictions: AnswerPredictions, calibration: Calibration) -> NDArray[np.bool_]:
    """Return whether the null score exceeds the answer's by more than the threshold, [N]."""
    return predictions.null_scores - predictions.scores > calibration.get(NO_ANSWER_THRESHOLD, np.inf)


def best_spans(
    logits: AnswerLogits, in_context: Tensor, may_start: Tensor, *, max_length: int
) -> tuple[Tensor, Tensor]:
    """Return the best answer span of each window, inside the context and at most `max_length` tokens long.

    Args:
        logits: Start and end logits, [B, S] each.
        in_context: True at context tokens [B, S].
        may_start: First position at which an answer may start, and the one after the last [B, 2].
        max_length: Maximum number of tokens of an answer.

    Returns:
        Values [B, 3]: the span's score (start logit plus end logit; `NO_SPAN` if no span is allowed), the score of
        [CLS], and the span's probability. Positions [B, 2] of the span's first and last token; ties go to the first.
    """
    start, end = logits.start.float(), logits.end.float()
    positions = torch.arange(start.shape[1], device=start.device)
    starts_here = in_context & (positions >= may_start[:, :1]) & (positions < may_start[:, 1:])
    ends = F.pad(end.masked_fill(~in_context, NO_SPAN), (0, max_length - 1), value=NO_SPAN)
    best_end, distance = ends.unfold(1, max_length, 1).max(dim=-1)
    total = start.masked_fill(~starts_here, NO_SPAN) + best_end
    score, first = total.max(dim=1)
    last = first + distance.gather(1, first[:, None])[:, 0]
    allowed = _with_cls(in_context)
    norm = sum(scores.masked_fill(~allowed, -torch.inf).logsumexp(dim=1) for scores in (start, end))
    # A sum that includes a masked position is only near `NO_SPAN` after rounding.
    score = score.masked_fill(score < NO_SPAN / 2, NO_SPAN)
    values = torch.stack([score, start[:, 0] + end[:, 0], (score - norm).exp()], dim=1)
    return values, torch.stack([first, last], dim=1)


def _with_cls(in_context: Tensor) -> Tensor:
    allowed = in_context.clone()
    allowed[:, 0] = True
    return allowed


def _cross_entropy(logits: Tensor, labels: Tensor, allowed: Tensor, label_smoothing: float) -> Tensor:
    """Compute cross-entropy over the allowed positions; label smoothing is spread over these only."""
    log_probabilities = torch.log_softmax(logits.float().masked_fill(~allowed, -torch.inf), dim=-1)
    gold = -log_probabilities.gather(1, labels[:, None])[:, 0]
    if not label_smoothing:
        return gold.mean()
    even = -log_probabilities.masked_fill(~allowed, 0.0).sum(dim=1) / allowed.sum(dim=1)
    return ((1 - label_smoothing) * gold + label_smoothing * even).mean()


def _best_of_windows(
    encoded: EncodedQuestions, found: NDArray[np.float64], spans: NDArray[np.int64]
) -> AnswerPredictions:
    """Select the best span of each question among its windows by unnormalized score, as in `run_squad.py`."""
    order = np.lexsort((-found[:, 0], encoded.rows))  # stable: ties go to the first window
    begins = np.searchsorted(encoded.rows, np.arange(len(encoded.questions)))
    best = order[begins]
    texts: list[str] = []
    starts = np.zeros(len(best), dtype=np.int64)
    for row, window in enumerate(best):
        if found[window, 0] <= NO_SPAN:
            texts.append("")
            continue
        context = encoded.context_of[row]
        places = encoded.contexts.places[encoded.contexts.bounds[context] :]
        starts[row], stop = places[spans[window, 0], 0], places[spans[window, 1], 1]
        texts.append(_cut(encoded.contexts.texts[context], int(starts[row]), int(stop)))
    null_scores = np.minimum.reduceat(found[:, 1], begins) if len(begins) else np.zeros(0)
    return AnswerPredictions(texts, starts, found[best, 0], null_scores, found[best, 2])


def _cut(context: str, start: int, stop: int) -> str:
    """Return the text of a span, including combining marks that follow its last letter."""
    while stop < len(context) and unicodedata.combining(context[stop]):
        stop += 1
    return context[start:stop]


def _pairs_of_scores(given: list[str], answers: list[list[str]]) -> list[tuple[float, float]]:
    return [answer_scores(text, right) for text, right in zip(given, answers, strict=True)]


task_kind = QuestionAnswering
