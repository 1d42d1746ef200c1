"""Extractive question answering: start and end of the answer in its context (paper, sections 4.2 and 4.3)."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from bertline.finetuning.encoding import scoring_indices
from bertline.finetuning.task_kind import Batch, Calibration, LossOptions, Statistics, TaskKind
from bertline.kinds.question_answering.answer_windows import NOT_TRAINED, EncodedQuestions, encode_questions
from bertline.modeling.heads import AnswerLogits
from bertline.tasks.metrics.answers import answer_scores, best_no_answer_threshold
from bertline.tasks.stored_rows import QuestionRows
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Machine
from bertline.training.probe import evaluating

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

    def loss(self, model: nn.Module, batch: Batch, options: LossOptions) -> Tensor:
        """Compute the mean of the cross-entropies of start and end."""
        logits: AnswerLogits = model(batch["input_ids"], batch["token_type_ids"], batch["attention_mask"])
        allowed = _with_cls(batch["in_context"])
        start, end = batch["labels"].unbind(-1)
        return (
            _cross_entropy(logits.start, start, allowed, options.label_smoothing)
            + _cross_entropy(logits.end, end, allowed, options.label_smoothing)
        ) / 2

    def predict(self, model: nn.Module, encoded: EncodedQuestions, machine: Machine) -> AnswerPredictions:
        found = np.zeros((len(encoded.rows), 3), dtype=np.float64)
        spans = np.zeros((len(encoded.rows), 2), dtype=np.int64)
        with evaluating(model, machine) as forward:
            for indices in scoring_indices(encoded.lengths, max_tokens=machine.scoring_tokens):
                on_device = {name: tensor.to(machine.device) for name, tensor in encoded.batch(indices).items()}
                logits = AnswerLogits(
                    *forward(on_device["input_ids"], on_device["token_type_ids"], on_device["attention_mask"])
                )
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
