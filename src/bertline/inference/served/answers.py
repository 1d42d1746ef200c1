"""Answers to questions, cut from contexts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from bertline.finetuning.kinds.question_answering import given_answers
from bertline.inference.served.base import FileColumns, InputColumn, ServedTask, require_pairs, row_ids
from bertline.tasks.stored_rows import QuestionRows


class Answer(NamedTuple):
    """What answers a question."""

    text: str
    """Words of the context; empty where it is held to have no answer."""
    start: int | None
    """Where it begins in the context, in characters; None without an answer."""
    score: float
    """Its probability, or that of there being none."""


class ServedQuestionAnswering(ServedTask):
    """One answer, or none, for each question."""

    def predict(self, questions: Sequence[str], contexts: Sequence[str]) -> list[Answer]:  # type: ignore[override]
        """The answer to each question in the context beside it; long contexts are read in overlapping windows."""
        asked, read = require_pairs(questions, contexts, ("questions", "contexts"))
        if not asked:
            return []
        count = len(asked)
        rows = QuestionRows(row_ids(count), [""] * count, asked, read, [[] for _ in asked], [[] for _ in asked])
        predictions = self.predictions(rows)
        # The table is where evaluation says how sure it is; it is asked, so that both always say the same.
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
        found = self.predict(*inputs)
        return [{"answer": each.text, "answer_start": each.start, "score": each.score} for each in found]
