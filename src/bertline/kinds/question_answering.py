"""Extractive question answering: start and end of the answer in its context (paper, sections 4.2 and 4.3)."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bertline.corpus.sentences import split_sentences
from bertline.demo.docstrings import ModuleDocs
from bertline.finetuning.encoding import INPUT_NAMES, scoring_indices, tensors
from bertline.foundation.errors import DataError
from bertline.kinds.base import Batch, Calibration, LossOptions, Statistics, TaskKind, require_pairs, row_ids
from bertline.tasks.bad_rows import BadRow, BadRows, require_whole_characters
from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.decoded_files import NO_OPTIONS, beginning_of, decoded_text
from bertline.tasks.metrics.answers import answer_scores, best_no_answer_threshold
from bertline.tasks.source_config import SquadSourceConfig
from bertline.tasks.source_files import read_splits, same_text
from bertline.tasks.stored_rows import BuiltTask, QuestionRows
from bertline.tasks.table_source import JSON_LINES, read_records

if TYPE_CHECKING:
    from bertline.kinds.base import Baseline, BaselineInputs, Machine, TaskPredictor, Tensor, Tokenizer, Usage, nn
    from bertline.modeling.heads import AnswerLogits
    from bertline.tokenization.tokenizer import Layout


NOT_TRAINED = -1
"""Label of a question whose answer has no token (a control character, for example); it is not trained on."""
NO_ANSWER_THRESHOLD = "no_answer_threshold"
"""Calibration key: an answer is withheld if the null score exceeds its score by more than this threshold."""
NO_SPAN = -1e9
"""Score of a window without an allowed answer span."""
MOVED = "answer_moved"
"""Key under which answers with a corrected start are counted. The question is kept."""
_AROUND = 160
"""Number of context characters shown on each side of an answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class QuestionAnsweringTaskConfig(BaseTaskConfig):
    """Extractive question answering: the answer is a span of the context, or none if the data has such questions."""

    kind: Literal["question_answering"]
    source: SquadSourceConfig
    window_overlap: int
    """Number of context tokens that consecutive windows share (BERT's `doc_stride` counts the others)."""
    max_question_length: int
    """Maximum length of a question in tokens; longer questions are truncated at the end."""
    max_answer_length: int
    """Maximum length of an answer in tokens."""
    metric: Literal["f1", "exact_match"]
    """Metric on dev that selects trials; higher is better."""

    def __post_init__(self) -> None:
        BaseTaskConfig.__post_init__(self)
        for name, least in (("window_overlap", 0), ("max_question_length", 1), ("max_answer_length", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, found {getattr(self, name)}")
        # [CLS] and two [SEP]; `Layout.room` is exact, with the special tokens of a tokenizer.
        room = self.max_length - self.max_question_length - 3
        if self.window_overlap >= room:
            raise ValueError(
                f"window_overlap is {self.window_overlap}, but next to a question of max_question_length="
                f"{self.max_question_length} a sequence of max_length={self.max_length} has room for {room} tokens of "
                "context; overlap by less than that"
            )


class Question(NamedTuple):
    """A question on a context, with all texts that count as its answer."""

    id: str
    title: str
    question: str
    context: str
    answers: list[str]
    """Gold answers; empty if the context does not answer the question."""
    starts: list[int]
    """Start of each answer, in characters of the context."""


class Answer(NamedTuple):
    """Predicted answer to a question."""

    text: str
    """Answer, a substring of the context; empty if the model predicts no answer."""
    start: int | None
    """Start of the answer in the context, in characters; None without an answer."""
    score: float
    """Probability of the answer, or of there being none."""


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

    def batch(self, indices: NDArray[np.integer]) -> Batch:
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
        return tensors(
            input_ids=input_ids,
            token_type_ids=self.layout.second_type * in_second.astype(np.int64),
            attention_mask=(positions < lengths[:, None]).astype(np.int64),
            in_context=in_second & (positions < lasts[:, None]),
            labels=self.labels[indices],
        )

    def first_positions(self, indices: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the position in the sequence of each window's first context token."""
        return self.lengths[indices] - len(self.layout.after) - (self.windows[indices, 1] - self.windows[indices, 0])


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

    config_class = QuestionAnsweringTaskConfig
    rows_class = QuestionRows
    head = "answers"
    file_columns = (("question", "text"), ("context", "text"))
    answers = (Answer,)
    output_schema = pa.schema([("answer", pa.string()), ("answer_start", pa.int64()), ("score", pa.float64())])
    asks = "Question answering: which span of a passage answers a question, or does none?"
    measures = "F1"

    @staticmethod
    def build(name: str, config: QuestionAnsweringTaskConfig, modules: Iterable[ModuleDocs] = ()) -> BuiltTask:
        """See `TaskKind.build`; splits are cut by article, and no context is scored after training on it."""
        splits, dropped = read_splits(
            config,
            read_squad,
            kept_together=lambda row: row.title,
            same=lambda row: same_text([row.context]),
            name="context",
        )
        return BuiltTask(
            splits={split: QuestionRows.of(rows) for split, rows in splits.items()},
            dropped=dropped,
            # Who never answers is always right there.
            targets={split: {()} for split, rows in splits.items() if rows and not any(row.answers for row in rows)},
            more={"without_answer": {split: sum(not row.answers for row in rows) for split, rows in splits.items()}},
        )

    # ---- the model

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
        import torch

        from bertline.training.devices import evaluating

        soft = np.zeros((len(encoded.rows), int(encoded.lengths.max(initial=0)), 2), dtype=np.float32)
        with evaluating(model, machine) as forward:
            for indices in scoring_indices(encoded.lengths, max_tokens=machine.scoring_tokens):
                batch = encoded.batch(indices)
                logits = torch.stack(forward(*(batch[name].to(machine.device) for name in INPUT_NAMES)), dim=-1)
                soft[indices, : logits.shape[1]] = logits.float().cpu().numpy()
        return soft

    def soft_loss(self, outputs: AnswerLogits, teacher: Tensor, batch: Batch, temperature: float) -> Tensor:
        """Compute the mean divergence from the teacher's distributions of start and end."""
        import torch

        from bertline.modeling.losses import softmax_divergence

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
        import torch

        from bertline.modeling.heads import AnswerLogits
        from bertline.training.devices import evaluating

        values_of_windows = np.zeros((len(encoded.rows), 3), dtype=np.float64)
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
                values_of_windows[indices] = values.double().cpu().numpy()
                spans[indices] = positions.cpu().numpy() - firsts[:, None] + windows[:, :1]
        return _best_of_windows(encoded, values_of_windows, spans)

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

    # ---- baselines, answers to users, report

    def baselines(self, inputs: BaselineInputs) -> list[Baseline]:
        """Return the first-sentence baseline (within the first line) and, if train has unanswerable questions, the
        no-answer baseline."""

        def answers(texts: list[str], starts: list[int]) -> AnswerPredictions:
            """Equal scores for the answer and for no answer: without a threshold, the text decides."""
            nothing = np.zeros(len(texts))
            return AnswerPredictions(texts, np.array(starts, dtype=np.int64), nothing, nothing, nothing)

        def first_sentences(rows: QuestionRows) -> AnswerPredictions:
            # Questions on the same context need not be adjacent, so each distinct context is split once, in advance.
            first = {text: next(iter(split_sentences(text.strip().split("\n")[0])), "") for text in set(rows.contexts)}
            texts = [first[context] for context in rows.contexts]
            return answers(texts, [context.find(text) for context, text in zip(rows.contexts, texts, strict=True)])

        made = [inputs.baseline("first_sentence", "first sentence of the context", first_sentences)]
        if not all(inputs.train.answers):
            nothing = inputs.baseline(
                "no_answer", "always no answer", lambda rows: answers([""] * len(rows), [0] * len(rows))
            )
            made.append(nothing)
        return made

    def serve(self, predictor: TaskPredictor, questions: Sequence[str], contexts: Sequence[str]) -> list[Answer]:
        """Answer each question from its context; long contexts are split into overlapping windows."""
        asked, read = require_pairs(questions, contexts, ("questions", "contexts"))
        if not asked:
            return []
        count = len(asked)
        rows = QuestionRows(row_ids(count), [""] * count, asked, read, [[] for _ in asked], [[] for _ in asked])
        predictions = predictor.predictions(rows)
        # The scores are taken from the table of evaluation, so that both always agree.
        scores = self.table(rows, predictions, predictor.calibration)["score"].to_pylist()
        given = given_answers(predictions, predictor.calibration)
        return [
            Answer(text, int(start) if text else None, float(score))
            for text, start, score in zip(given, predictions.starts, scores, strict=True)
        ]

    def file_output(self, predicted: Answer) -> dict[str, Any]:
        return {"answer": predicted.text, "answer_start": predicted.start, "score": predicted.score}

    @staticmethod
    def error_block(error: dict[str, Any]) -> str:
        from bertline.evaluation.html import escape, quote, sureness

        gold, predicted = str(error["gold"] or ""), str(error["predicted"] or "")
        context = str(error.get("context", ""))
        blocks = [f"<p><b>{escape(error.get('question', ''))}</b></p>"]
        blocks.append(f"<p>{_marked(context, gold, predicted)}</p>" if context else "")
        note = f"is {gold or 'no answer'}, answered {predicted or 'no answer'} {sureness(error)}"
        return quote("".join(blocks), note)

    def usage(self, calibration: Calibration, *, pair: bool) -> Usage:
        from bertline.export.usage import Usage

        if calibration:
            unanswered = (
                "It gives no answer where the best one falls behind by more than a threshold that was chosen on dev "
                "(`task.json`)."
            )
        else:
            unanswered = "It gives an answer to every question, also where the context has none."
        return Usage(
            what="Finds the answer to a question in a context.",
            tag="question-answering",
            pipeline=False,
            snippets=(
                'import bertline\n\nbertline.load("NAME").predict(["Who wrote it?"], ["It was written by her."])  '
                "# text, start, score",
            ),
            limits=("The answer is always words of the context.", unanswered),
        )


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
    import torch
    import torch.nn.functional as F

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
    import torch

    log_probabilities = torch.log_softmax(logits.float().masked_fill(~allowed, -torch.inf), dim=-1)
    gold = -log_probabilities.gather(1, labels[:, None])[:, 0]
    if not label_smoothing:
        return gold.mean()
    even = -log_probabilities.masked_fill(~allowed, 0.0).sum(dim=1) / allowed.sum(dim=1)
    return ((1 - label_smoothing) * gold + label_smoothing * even).mean()


def _best_of_windows(
    encoded: EncodedQuestions, values: NDArray[np.float64], spans: NDArray[np.int64]
) -> AnswerPredictions:
    """Select the best span of each question among its windows by unnormalized score, as in `run_squad.py`."""
    order = np.lexsort((-values[:, 0], encoded.rows))  # stable: ties go to the first window
    begins = np.searchsorted(encoded.rows, np.arange(len(encoded.questions)))
    best = order[begins]
    texts: list[str] = []
    starts = np.zeros(len(best), dtype=np.int64)
    for row, window in enumerate(best):
        if values[window, 0] <= NO_SPAN:
            texts.append("")
            continue
        context = encoded.context_of[row]
        places = encoded.contexts.places[encoded.contexts.bounds[context] :]
        starts[row], stop = places[spans[window, 0], 0], places[spans[window, 1], 1]
        texts.append(_cut(encoded.contexts.texts[context], int(starts[row]), int(stop)))
    null_scores = np.minimum.reduceat(values[:, 1], begins) if len(begins) else np.zeros(0)
    return AnswerPredictions(texts, starts, values[best, 0], null_scores, values[best, 2])


def _cut(context: str, start: int, stop: int) -> str:
    """Return the text of a span, including combining marks that follow its last letter."""
    while stop < len(context) and unicodedata.combining(context[stop]):
        stop += 1
    return context[start:stop]


def _pairs_of_scores(given: list[str], answers: list[list[str]]) -> list[tuple[float, float]]:
    return [answer_scores(text, right) for text, right in zip(given, answers, strict=True)]


def _marked(context: str, gold: str, predicted: str) -> str:
    """Return the context around the answers, with the gold and the predicted answer highlighted."""
    from bertline.evaluation.html import CHARACTERS, escape, shortened

    places: list[tuple[int, int, str]] = []
    for answer, css in ((gold, "right"), (predicted, "wrong")):
        at = context.find(answer) if answer else -1
        if at >= 0 and not any(at < end and start < at + len(answer) for start, end, _ in places):
            places.append((at, at + len(answer), css))
    if not places:
        return escape(shortened(context, CHARACTERS))
    places.sort()
    done = max(0, places[0][0] - _AROUND)
    if done:
        done += context[done:].find(" ") + 1  # begin with a whole word
    parts = ["… " if done else ""]
    for start, end, css in places:
        between = context[done:start]
        if len(between) > 3 * _AROUND:
            between = between[:_AROUND] + " … " + between[-_AROUND:]
        parts += [escape(between), f'<mark class="{css}">{escape(context[start:end])}</mark>']
        done = end
    rest = context[done:]
    return "".join(parts) + escape(shortened(rest, _AROUND))


# SQuAD files.


def read_squad(path: Path, source: SquadSourceConfig, bad_rows: BadRows) -> list[Question]:
    """Read the questions of a SQuAD file of either version, plain or `.gz`: articles, or JSONL or Parquet of questions.

    Where invalid questions are skipped, an answer that is not at its `answer_start` is moved to where it occurs in the
    context, if it occurs exactly once; `bad_rows` counts moved answers, too.

    Raises:
        DataError: The file is not SQuAD JSON, or a question is invalid and invalid questions are errors. The message
            names file, article and question.
    """
    questions: dict[str, Question] = {}
    flat = _flat_format(path)
    for where, title, context, qa in _articles(path) if flat is None else _flat_questions(path, flat, bad_rows):
        try:
            question, num_moved = _question(title, context, qa, may_move=source.on_bad_row == "skip")
            if question.id in questions:
                raise BadRow("duplicate_id", "another question of the file has the same id")
        except BadRow as bad:
            bad_rows.report(bad.reason, f"{where}: {bad}. Fix it or remove the question.")
            continue
        questions[question.id] = question
        bad_rows.dropped[MOVED] += num_moved
    return [*questions.values()]


def _articles(path: Path) -> Iterator[tuple[str, str, Any, Any]]:
    """Yield, for each question, its place (for messages), its article's title, its context and its JSON object."""
    try:
        content = json.loads(decoded_text(path, "utf-8", NO_OPTIONS))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{error.lineno}:{error.colno} is not JSON ({error.msg}). Is the file whole?") from error
    articles = _member(content, "data")
    if not isinstance(articles, list):
        raise DataError(f'{path}: expected SQuAD JSON, {{"data": [articles]}}, but found no list "data" in it.')
    for number, article in enumerate(articles, start=1):
        title = _member(article, "title")
        # Annotation tools omit titles; a number keeps the articles apart.
        title = title if isinstance(title, str) and title.strip() else f"article {number}"
        for paragraph in _list(article, "paragraphs", f"{path}, article {title!r}"):
            for qa in _list(paragraph, "qas", f"{path}, article {title!r}, a paragraph"):
                where = f"{path}, article {title!r}, question {_member(qa, 'id')!r}"
                yield where, title, _member(paragraph, "context"), qa


def _member(value: Any, key: str) -> Any:
    """Return a value of a JSON object; None if it is no object or lacks it."""
    return value.get(key) if isinstance(value, dict) else None


def _list(value: Any, key: str, where: str) -> list[Any]:
    inner = _member(value, key)
    if not isinstance(inner, list):
        raise DataError(f'{where}: expected a list "{key}", as SQuAD has it.')
    return inner


def _flat_format(path: Path) -> Literal["jsonl", "parquet"] | None:
    """Return the format of a file with a question a row, as `datasets` writes SQuAD; None for a file of articles."""
    start = beginning_of(path, "utf-8") if path.is_file() else None
    if start is None or start.is_parquet:
        return None if start is None else "parquet"
    try:
        first = json.loads(next((line for line in start.lines if line.strip()), ""))
    except (ValueError, RecursionError):
        return None
    return "jsonl" if isinstance(first, dict) and "context" in first else None


def _flat_questions(
    path: Path, kind: Literal["jsonl", "parquet"], bad_rows: BadRows
) -> Iterator[tuple[str, str, Any, Any]]:
    """Yield what `_articles` does. Questions without a title have one for each context, without an id their line."""
    titles: dict[str, str] = {}
    for record in read_records(path, replace(JSON_LINES, format=kind), bad_rows):
        row = record.values
        answers, context, title = row.get("answers"), row.get("context"), row.get("title")
        if isinstance(answers, dict) and isinstance(answers.get("text"), list):
            # A missing start is reported as the question's.
            pairs = zip_longest(answers["text"], answers.get("answer_start") or [])
            answers = [{"text": text, "answer_start": start} for text, start in pairs]
        if not isinstance(title, str) or not title.strip():
            title = titles.setdefault(str(context), f"context {len(titles) + 1}")
        qa = {"is_impossible": answers == [], **row, "id": row.get("id", record.where), "answers": answers}
        yield f"{path}:{record.line}, question {qa['id']!r}", title, context, qa


def _question(title: str, context: Any, qa: Any, *, may_move: bool) -> tuple[Question, int]:
    """Return the question, and how many of its answers were moved."""
    if not isinstance(_member(qa, "id"), str | int):
        raise BadRow("missing_key", 'it has no "id"')
    require_whole_characters([title, context, qa])
    for name, text in (("context", context), ("question", qa.get("question"))):
        if not isinstance(text, str):
            raise BadRow("missing_key", f'it has no "{name}"')
        if not text.strip():
            raise BadRow(f"empty_{name}", f"its {name} is empty")
    impossible = qa.get("is_impossible", False)
    answers = qa.get("answers", [] if impossible else None)
    if not isinstance(answers, list):
        raise BadRow("missing_key", 'it has no list "answers"')
    if impossible and answers:
        raise BadRow("impossible_with_answers", "it is marked is_impossible and has answers all the same")
    if not impossible and not answers:
        raise BadRow("no_answer", "it has no answers and is not marked is_impossible (SQuAD 2.0), so none can be right")
    texts = [_member(answer, "text") for answer in answers]
    given = [_member(answer, "answer_start") for answer in answers]
    starts = [_start(context, text, start, may_move) for text, start in zip(texts, given, strict=True)]
    num_moved = sum(start != place for start, place in zip(given, starts, strict=True))
    return Question(str(qa["id"]), title, qa["question"], context, texts, starts), num_moved


def _start(context: str, text: Any, start: Any, may_move: bool) -> int:
    """Return where an answer starts: at `start`, or where it occurs if that is one place and it may be moved."""
    if not isinstance(text, str) or not isinstance(start, int) or isinstance(start, bool):
        raise BadRow("missing_key", 'an answer lacks "text" or "answer_start"')
    if not text.strip():
        raise BadRow("empty_answer", "an answer is empty")
    if start < 0:
        raise BadRow("answer_not_in_context", f"answer_start of {text!r} is {start}; places count from 0")
    if context.startswith(text, start):
        return start
    first = context.find(text)
    if may_move and first >= 0 and context.find(text, first + 1) < 0:
        return first
    stands = context[start : start + len(text)]
    hint = "it stands nowhere in the context" if first < 0 else f"it stands at {first}"
    raise BadRow(
        "answer_not_in_context",
        f"the answer {text!r} should stand at answer_start {start}, where the context has {stands!r}; {hint} "
        "(starts count characters, not bytes)",
    )
