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

from bertline.corpus.lines import numbered_lines
from bertline.corpus.sentences import split_sentences
from bertline.corpus.tables import JSON_LINES, read_records, require_whole_characters
from bertline.demo.docstrings import ModuleDocs
from bertline.encoding.sequences import SegmentPair, Sequences, assembled, outputs_of, tensors, window_starts
from bertline.foundation.bad_rows import BadRow, BadRows
from bertline.foundation.checked import NonNegativeInt, PositiveInt
from bertline.foundation.errors import DataError
from bertline.kinds.base import Batch, Calibration, LossOptions, Statistics, TaskKind
from bertline.kinds.inputs import require_pairs, row_ids
from bertline.kinds.usage import Usage
from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.metrics.answers import answer_scores, best_no_answer_threshold
from bertline.tasks.source_config import SquadSourceConfig
from bertline.tasks.source_files import read_splits, same_text
from bertline.tasks.stored_rows import BuiltTask, QuestionRows

if TYPE_CHECKING:
    from bertline.kinds.base import Baseline, BaselineInputs, Machine, TaskPredictor, Tensor, Tokenizer, nn
    from bertline.modeling.heads import AnswerLogits

NOT_TRAINED = -1
"""Label of a question whose answer has no token (a control character, for example); it is not trained on."""
NO_ANSWER_THRESHOLD = "no_answer_threshold"
"""Calibration key: an answer is withheld if the null score exceeds its score by more than this threshold."""
NO_SPAN = -1e9
"""Score of a window without an allowed answer span."""


@dataclass(frozen=True, kw_only=True, slots=True)
class QuestionAnsweringTaskConfig(BaseTaskConfig):
    """Extractive question answering: the answer is a span of the context, or none if the data has such questions."""

    kind: Literal["question_answering"]
    source: SquadSourceConfig
    window_overlap: NonNegativeInt
    """Number of context tokens that consecutive windows share (BERT's `doc_stride` counts the others)."""
    max_question_length: PositiveInt
    """Maximum length of a question in tokens; longer questions are truncated at the end."""
    max_answer_length: PositiveInt
    """Maximum length of an answer in tokens."""
    metric: Literal["f1", "exact_match"]
    """Metric on dev that selects trials; higher is better."""

    def check(self) -> None:
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
class EncodedQuestions:
    """N questions in W windows `[CLS] question [SEP] part of the context [SEP]`, those of a question in order."""

    sequences: Sequences
    """The W windows."""
    rows: NDArray[np.int64]
    """Index of each window's question [W]."""
    windows: NDArray[np.int64]
    """Token ranges of the windows [W, 4], as returned by `windows_of`."""
    firsts: NDArray[np.int64]
    """Position of each window's first context token [W]."""
    labels: NDArray[np.int64]
    """Positions of the answer's first and last token [W, 2]; 0, [CLS], if the window does not contain all of it."""
    contexts: list[str]
    """Context of each question [N]."""
    places: list[NDArray[np.int32]]
    """Start and end in the context of each of its tokens, in characters, for each question [N]."""
    cut: NDArray[np.bool_]
    """Whether the question was truncated [N]."""

    def in_context(self, windows: NDArray[np.integer], length: int) -> NDArray[np.bool_]:
        """Return which positions up to `length` of some windows are tokens of the context, [B, S]."""
        firsts, ranges = self.firsts[windows, None], self.windows[windows]
        positions = np.arange(length)
        return (positions >= firsts) & (positions < firsts + ranges[:, 1:2] - ranges[:, :1])

    def batch(self, windows: NDArray[np.integer]) -> Batch:
        batch = self.sequences.batch(windows)
        in_context = self.in_context(windows, batch["input_ids"].shape[1])
        return {**batch, **tensors(in_context=in_context, labels=self.labels[windows])}


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
    unsmoothed = "its targets are positions"

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
        """See `TaskKind.encode`; splits contexts into windows that share `window_overlap` tokens (`run_squad.py`)."""
        config, texts = self.config, list(dict.fromkeys(rows.contexts))
        contexts = {
            text: (ids, np.array(places, dtype=np.int32).reshape(-1, 2))
            for text, (ids, places) in zip(texts, tokenizer.encode_with_places(texts), strict=True)
        }
        whole, most = tokenizer.encode_literally(rows.questions), config.max_question_length
        layout = tokenizer.pair
        room = layout.room(config.max_length, question=most, overlap=config.window_overlap) + most
        ahead = len(layout.before) + len(layout.between)
        parts: list[SegmentPair] = []
        windows, labels = [np.zeros((0, 4), dtype=np.int64)], [np.zeros((0, 2), dtype=np.int64)]
        for row, (text, all_ids) in enumerate(zip(rows.contexts, whole, strict=True)):
            (ids, places), question = contexts[text], all_ids[:most]
            of_row = windows_of(len(ids), room - len(question), config.window_overlap)
            windows.append(of_row)
            labels.append(_labels(of_row, places, rows, row, ahead + len(question)))
            parts += [(question, ids[first:stop], False) for first, stop in of_row[:, :2].tolist()]
        return EncodedQuestions(
            sequences=assembled(parts, tokenizer),
            rows=np.repeat(np.arange(len(rows)), [len(of_row) for of_row in windows[1:]]),
            windows=np.concatenate(windows),
            firsts=ahead + np.array([len(question) for question, _, _ in parts], dtype=np.int64),
            labels=np.concatenate(labels),
            contexts=rows.contexts,
            places=[contexts[text][1] for text in rows.contexts],
            cut=np.array([len(ids) > most for ids in whole], dtype=np.bool_),
        )

    def trained_on(self, encoded: EncodedQuestions) -> NDArray[np.int64]:
        return np.flatnonzero(encoded.labels[:, 0] != NOT_TRAINED)

    def soft_targets(self, model: nn.Module, encoded: EncodedQuestions, machine: Machine) -> NDArray[np.float32]:
        return outputs_of(model, encoded.sequences, machine, encoded.sequences.input_ids.shape[1], 2)

    def compared(self, outputs: AnswerLogits, teacher: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the logits of start and of end over [CLS] and the context, [B, 2, S]."""
        import torch

        forbidden = ~_with_cls(batch["in_context"])[..., None]
        logits = torch.stack(outputs, dim=-1).float().masked_fill(forbidden, NO_SPAN)
        theirs = teacher[:, : logits.shape[1]].masked_fill(forbidden, NO_SPAN)
        return logits.transpose(1, 2), theirs.transpose(1, 2)

    def hard_loss(self, model: nn.Module, outputs: AnswerLogits, batch: Batch, options: LossOptions) -> Tensor:
        import torch
        import torch.nn.functional as F

        forbidden = ~_with_cls(batch["in_context"])
        losses = [
            F.cross_entropy(logits.float().masked_fill(forbidden, -torch.inf), labels)
            for logits, labels in zip(outputs, batch["labels"].unbind(-1), strict=True)
        ]
        return (losses[0] + losses[1]) / 2

    def predict(self, model: nn.Module, encoded: EncodedQuestions, machine: Machine) -> AnswerPredictions:
        import torch

        from bertline.modeling.heads import AnswerLogits

        logits = torch.from_numpy(self.soft_targets(model, encoded, machine))
        in_context = torch.from_numpy(encoded.in_context(np.arange(len(encoded.rows)), logits.shape[1]))
        starts = (encoded.firsts - encoded.windows[:, 0])[:, None]
        may_start, most = torch.from_numpy(encoded.windows[:, 2:] + starts), self.config.max_answer_length
        values, positions = best_spans(AnswerLogits(*logits.unbind(-1)), in_context, may_start, max_length=most)
        return _best_of_windows(encoded, values.double().numpy(), positions.numpy() - starts)

    def calibrate(self, rows: QuestionRows, predictions: AnswerPredictions) -> Calibration:
        scores, has_answer = _scored(rows, predictions.texts)
        if has_answer.all():
            return {}
        of_metric = scores[:, ("f1", "exact_match").index(self.config.metric)]
        margins = predictions.null_scores - predictions.scores
        return {NO_ANSWER_THRESHOLD: best_no_answer_threshold(of_metric, has_answer, margins)}

    def statistics(self, rows: QuestionRows, predictions: AnswerPredictions, calibration: Calibration) -> Statistics:
        """Return F1, exact match, and whether the question has an answer, [N, 3]."""
        scores, has_answer = _scored(rows, predictions.texts)
        # As in the official script: withheld answers are correct exactly for questions without an answer.
        scores = np.where(_withheld(predictions, calibration)[:, None], ~has_answer[:, None], scores)
        return np.column_stack((scores, has_answer))

    def scores(self, statistics: Statistics) -> dict[str, float]:
        has_answer = statistics[:, 2] == 1
        groups = {"": has_answer | True}
        if not has_answer.all():
            groups |= {"has_answer_": has_answer, "no_answer_": ~has_answer}
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
        """Return the first sentence of the first line and, if train has unanswerable questions, no answer."""

        def answers(texts: list[str], starts: list[int]) -> AnswerPredictions:
            # Equal scores for the answer and for no answer: without a threshold, the text decides.
            nothing = np.zeros(len(texts))
            return AnswerPredictions(texts, np.array(starts, dtype=np.int64), nothing, nothing, nothing)

        def first_sentences(rows: QuestionRows) -> AnswerPredictions:
            texts = [next(iter(split_sentences(text.strip().split("\n")[0])), "") for text in rows.contexts]
            return answers(texts, [context.find(text) for context, text in zip(rows.contexts, texts, strict=True)])

        made = [inputs.baseline("first_sentence", "first sentence of the context", first_sentences)]
        if not all(inputs.train.answers):
            made.append(
                inputs.baseline(
                    "no_answer", "always no answer", lambda rows: answers([""] * len(rows), [0] * len(rows))
                )
            )
        return made

    def serve(self, predictor: TaskPredictor, questions: Sequence[str], contexts: Sequence[str]) -> list[Answer]:
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

    def usage(self, calibration: Calibration, *, pair: bool) -> Usage:
        unanswered = (
            "It gives no answer where the best one falls behind by more than a threshold that was chosen on dev "
            "(`task.json`)."
            if calibration
            else "It gives an answer to every question, also where the context has none."
        )
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
    """
    firsts = np.array(window_starts(num_tokens, room, overlap))
    stops = np.minimum(firsts + room, num_tokens)
    tokens = np.arange(num_tokens)
    left, right = tokens - firsts[:, None], stops[:, None] - 1 - tokens
    context = np.minimum(left, right)
    scores = np.where(context >= 0, context + 0.01 * (stops - firsts)[:, None], -np.inf)
    best = scores.argmax(axis=0)
    best_firsts, best_stops = (np.searchsorted(best, np.arange(len(firsts)), side=side) for side in ("left", "right"))
    return np.stack([firsts, stops, best_firsts, best_stops], axis=1)


def _labels(
    windows: NDArray[np.int64], places: NDArray[np.int32], rows: QuestionRows, row: int, first_position: int
) -> NDArray[np.int64]:
    """Return the labels of one question's windows [windows, 2] (see `EncodedQuestions.labels`): the tokens that overlap
    its first gold answer."""
    labels = np.zeros((len(windows), 2), dtype=np.int64)
    if not rows.answers[row]:
        return labels
    start = rows.starts[row][0]
    first = int(np.searchsorted(places[:, 1], start, side="right"))
    last = int(np.searchsorted(places[:, 0], start + len(rows.answers[row][0]), side="left")) - 1
    if first > last:
        return labels + NOT_TRAINED
    whole = (windows[:, 0] <= first) & (last < windows[:, 1])
    labels[whole] = np.array([first, last]) - windows[whole, :1] + first_position
    return labels


def given_answers(predictions: AnswerPredictions, calibration: Calibration) -> list[str]:
    """Return the predicted answers, empty for "no answer"; without a threshold, none is withheld."""
    withheld = _withheld(predictions, calibration)
    return ["" if nothing else text for text, nothing in zip(predictions.texts, withheld, strict=True)]


def _withheld(predictions: AnswerPredictions, calibration: Calibration) -> NDArray[np.bool_]:
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


def _best_of_windows(
    encoded: EncodedQuestions, values: NDArray[np.float64], spans: NDArray[np.int64]
) -> AnswerPredictions:
    """Select the best span of each question among its windows by unnormalized score, as in `run_squad.py`."""
    order = np.lexsort((-values[:, 0], encoded.rows))  # stable: ties go to the first window
    begins = np.searchsorted(encoded.rows, np.arange(len(encoded.contexts)))
    best = order[begins]
    texts: list[str] = []
    starts = np.zeros(len(best), dtype=np.int64)
    for row, (window, context) in enumerate(zip(best, encoded.contexts, strict=True)):
        if values[window, 0] <= NO_SPAN:
            texts.append("")
            continue
        first, last = spans[window]
        starts[row], stop = encoded.places[row][first, 0], int(encoded.places[row][last, 1])
        while stop < len(context) and unicodedata.combining(context[stop]):
            stop += 1  # a combining mark after the last letter belongs to no token
        texts.append(context[starts[row] : stop])
    null_scores = np.minimum.reduceat(values[:, 1], begins) if len(begins) else np.zeros(0)
    return AnswerPredictions(texts, starts, values[best, 0], null_scores, values[best, 2])


def _scored(rows: QuestionRows, given: list[str]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return F1 and exact match of answers [N, 2], and whether the questions have one [N]."""
    scores = [answer_scores(text, right) for text, right in zip(given, rows.answers, strict=True)]
    return np.array(scores).reshape(-1, 2), np.array([bool(answers) for answers in rows.answers], dtype=np.bool_)


def read_squad(path: Path, source: SquadSourceConfig, bad_rows: BadRows) -> list[Question]:
    """Read the questions of a SQuAD file of either version, plain or `.gz`: JSON of articles or, as `datasets` writes
    it, JSONL, a JSON array or Parquet with a question a row.

    Raises:
        DataError: The file is not SQuAD, or a question is invalid and invalid questions are errors. The message names
            file, article and question.
    """
    questions: dict[str, Question] = {}
    is_flat = Path(path.name.removesuffix(".gz")).suffix.lower() in (".jsonl", ".parquet")
    for where, row in _flat_questions(path, bad_rows) if is_flat else _articles(path, bad_rows):
        try:
            question = _question(row)
            if question.id in questions:
                raise BadRow("duplicate_id", "another question of the file has the same id")
        except BadRow as bad:
            bad_rows.report(bad.reason, f"{where}: {bad}.", "Fix it or remove the question.")
            continue
        questions[question.id] = question
    return [*questions.values()]


def _articles(path: Path, bad_rows: BadRows) -> Iterator[tuple[str, dict[Any, Any]]]:
    """Yield, for each question, its place (for messages), and its JSON object with its article's title and context."""
    try:
        content = json.loads("\n".join(line for _, line in numbered_lines(path)))
        if isinstance(content, list):
            yield from _flat_questions(path, bad_rows)
            return
        for number, article in enumerate(content["data"], start=1):
            # Annotation tools omit titles; a number keeps the articles apart.
            title = str(article.get("title") or "").strip() or f"article {number}"
            for paragraph in article["paragraphs"]:
                for qa in paragraph["qas"]:
                    where = f"{path}, article {title!r}, question {qa.get('id')!r}"
                    yield where, {**qa, "title": title, "context": paragraph.get("context")}
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path} is not SQuAD's JSON, data > paragraphs > qas ({error!r}). Is the file whole? One with an object a "
            "line has to end in .jsonl."
        ) from error


def _flat_questions(path: Path, bad_rows: BadRows) -> Iterator[tuple[str, dict[Any, Any]]]:
    """Yield what `_articles` does. Questions without a title have one for each context, without an id their line."""
    titles: dict[str, str] = {}
    for record in read_records(path, replace(JSON_LINES, format="auto"), bad_rows):
        row = record.values
        answers, identity = row.get("answers"), row.get("id", record.where)
        if isinstance(answers, dict) and isinstance(answers.get("text"), list):
            # A missing start is reported as the question's.
            answers = [
                {"text": text, "answer_start": start}
                for text, start in zip_longest(answers["text"], answers.get("answer_start") or [])
            ]
        title = str(row.get("title") or titles.setdefault(str(row.get("context")), f"context {len(titles) + 1}"))
        own = {"id": identity, "answers": answers, "title": title}
        yield f"{path}:{record.line}, question {identity!r}", {"is_impossible": answers == [], **row, **own}


def _question(row: dict[Any, Any]) -> Question:
    if not isinstance(row.get("id"), str | int):
        raise BadRow("missing_key", 'it has no "id"')
    require_whole_characters(row)
    for name in ("context", "question"):
        if not isinstance(text := row.get(name), str):
            raise BadRow("missing_key", f'it has no "{name}"')
        if not text.strip():
            raise BadRow(f"empty_{name}", f"its {name} is empty")
    context, impossible = row["context"], row.get("is_impossible", False)
    answers = row.get("answers", [] if impossible else None)
    if not isinstance(answers, list):
        raise BadRow("missing_key", 'it has no list "answers"')
    if impossible and answers:
        raise BadRow("impossible_with_answers", "it is marked is_impossible and has answers all the same")
    if not impossible and not answers:
        raise BadRow("no_answer", "it has no answers and is not marked is_impossible (SQuAD 2.0), so none can be right")
    places: list[tuple[Any, Any]] = [
        (answer.get("text"), answer.get("answer_start")) if isinstance(answer, dict) else (None, None)
        for answer in answers
    ]
    for text, start in places:
        if not isinstance(text, str) or not isinstance(start, int) or isinstance(start, bool):
            raise BadRow("missing_key", 'an answer lacks "text" or "answer_start"')
        if not text.strip():
            raise BadRow("empty_answer", "an answer is empty")
        if start < 0 or not context.startswith(text, start):
            raise BadRow(
                "answer_not_in_context",
                f"the answer {text!r} should stand at answer_start {start}, where the context has "
                f"{context[max(start, 0) :][: len(text)]!r}; starts count characters from 0, not bytes",
            )
    return Question(
        str(row["id"]),
        row["title"],
        row["question"],
        context,
        [text for text, _ in places],
        [start for _, start in places],
    )
