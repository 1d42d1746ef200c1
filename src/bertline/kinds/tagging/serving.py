"""Tagging of every word of a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from bertline.inference.predictor import FileColumns, InputColumn, TaskPredictor, row_ids
from bertline.inference.words import split_words
from bertline.tasks.stored_rows import TaggedRows


class TaggedWord(NamedTuple):
    """Word of a text with its tag."""

    text: str
    tag: str
    start: int
    """Start in the input text, in characters; for a list of words, in the words joined by spaces."""
    end: int
    """End in the input text, exclusive."""
    score: float
    """Probability of the tag."""


class TaggingPredictor(TaskPredictor):
    """Tagging that returns every word with its tag."""

    def predict(self, texts: Sequence[str] | Sequence[Sequence[str]]) -> list[list[TaggedWord]]:  # type: ignore[override]
        """Return the words of each text with their tags.

        Args:
            texts: Texts, which are split into words at white space and punctuation; or lists of words, which are used
                unchanged, as in evaluation.
        """
        read = split_words(texts)
        words = [[text[a:b] for a, b in places] for text, places in read]
        if not any(words):
            return [[] for _ in read]
        unknown = [[self.kind.labels[0]] * len(of_text) for of_text in words]
        found = self.predictions(TaggedRows(row_ids(len(read)), [""] * len(read), words, unknown))
        return [
            [
                TaggedWord(text[start:end], self.kind.labels[number], start, end, float(score))
                for (start, end), number, score in zip(places, numbers, scores, strict=True)
            ]
            for (text, places), numbers, scores in zip(read, found.labels, found.word_confidences, strict=True)
        ]

    def file_inputs(self, columns: FileColumns) -> list[InputColumn]:
        return [InputColumn(columns.text, "text or texts")]

    def output_schema(self) -> pa.Schema:
        fields = [("text", pa.string()), ("tag", pa.string()), ("start", pa.int64()), ("end", pa.int64())]
        return pa.schema([("words", pa.list_(pa.struct([*fields, ("score", pa.float64())])))])

    def file_outputs(self, *inputs: list[Any]) -> list[dict[str, Any]]:
        return [{"words": [word._asdict() for word in of_text]} for of_text in self.predict(inputs[0])]


def predictor(kind: Any) -> type[TaskPredictor]:
    """Return the class that predicts on user inputs."""
    return TaggingPredictor
