"""Extractive question answering."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from bertline.inference.predictor import FileColumns, InputColumn, TaskPredictor, require_pairs, row_ids
from bertline.kinds.question_answering.model import given_answers
from bertline.tasks.stored_rows import QuestionRows


class Answer(NamedTuple):
    """Predicted answer to a question."""

    text: str
    """Answer, a substring of the context; empty if the model predicts no answer."""
    start: int | None
    """Start of the answer in the context, in characters; None without an answer."""
    score: float
    """Probability of the answer, or of there being none."""


class QuestionAnsweringPredictor(TaskPredictor):
    """Question answering with at most one answer per question."""

    def predict(self, questions: Sequence[str], contexts: Sequence[str]) -> list[Answer]:  # type: ignore[override]
        """Answer each question from its context; long contexts are split into overlapping windows."""
        asked, read = require_pairs(questions, contexts, ("questions", "contexts"))
        if not asked:
            return []
        count = len(asked)
        rows = QuestionRows(row_ids(count), [""] * count, asked, read, [[] for _ in asked], [[] for _ in asked])
        predictions = self.predictions(rows)
        # The scores are taken from the table of evaluation, so that both always agree.
        scores = self.kind.table(rows, predictions, self.calibration)["score"].to_pylist()
        given = given_answers(predictions, self.calibration)
        return [
            Answer(text, int(start) if text else None, float(score))
            for text, start, score in zip(given, predictions.starts, scores, strict=True)
        ]

    def file_inputs(self, columns: FileColumns) -> list[InputColumn]:
        return [InputColumn(columns.question, "text"), InputColumn(columns.context, "text")]

    def output_schema(self) -> pa.Schema:
        return pa.schema([("answer", pa.string()), ("answer_start", pa.int64()), ("score", pa.float64())])

    def file_outputs(self, *inputs: list[Any]) -> list[dict[str, Any]]:
        answers = self.predict(*inputs)
        return [{"answer": each.text, "answer_start": each.start, "score": each.score} for each in answers]


predictor = QuestionAnsweringPredictor
