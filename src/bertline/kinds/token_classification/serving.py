"""Token classification: entities in text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from bertline.finetuning.word_tagging import decided
from bertline.inference.predictor import FileColumns, InputColumn, TaskPredictor, row_ids
from bertline.inference.words import split_words
from bertline.tasks.metrics.entities import entities
from bertline.tasks.stored_rows import TaggedRows
from bertline.tasks.tags import OUTSIDE


class Entity(NamedTuple):
    """Named entity in a text."""

    type: str
    text: str
    start: int
    """Start in the input text, in characters; for a list of words, in the words joined by spaces."""
    end: int
    """End in the input text, exclusive."""
    score: float
    """Lowest tag probability among its words."""


class TokenClassificationPredictor(TaskPredictor):
    """Token classification that returns entities."""

    def predict(self, texts: Sequence[str] | Sequence[Sequence[str]]) -> list[list[Entity]]:  # type: ignore[override]
        """Return the entities of each text, in text order.

        Args:
            texts: Texts, which are split into words at white space and punctuation; or lists of words, which are used
                unchanged, as in evaluation.
        """
        read = split_words(texts)
        words_of = [[text[a:b] for a, b in places] for text, places in read]
        if not any(words_of):
            return [[] for _ in read]
        rows = TaggedRows(
            row_ids(len(read)), [""] * len(read), words_of, [[OUTSIDE] * len(words) for words in words_of]
        )
        predictions = decided(self.predictions(rows), self.calibration)
        return [
            _entities(text, places, [self.kind.labels[number] for number in numbers], confidences.tolist())
            for (text, places), numbers, confidences in zip(
                read, predictions.labels, predictions.word_confidences, strict=True
            )
        ]

    def file_inputs(self, columns: FileColumns) -> list[InputColumn]:
        return [InputColumn(columns.text, "text or texts")]

    def output_schema(self) -> pa.Schema:
        fields = [("type", pa.string()), ("text", pa.string()), ("start", pa.int64()), ("end", pa.int64())]
        return pa.schema([("entities", pa.list_(pa.struct([*fields, ("score", pa.float64())])))])

    def file_outputs(self, *inputs: list[Any]) -> list[dict[str, Any]]:
        found = self.predict(inputs[0])
        return [{"entities": [entity._asdict() for entity in of_text]} for of_text in found]


def _entities(text: str, places: list[tuple[int, int]], tags: list[str], confidences: list[float]) -> list[Entity]:
    found = []
    for kind, first, last in sorted(entities(tags), key=lambda entity: entity[1]):
        start, end = places[first][0], places[last][1]
        found.append(Entity(kind, text[start:end], start, end, min(confidences[first : last + 1])))
    return found


def predictor(kind: Any) -> type[TaskPredictor]:
    """Return the class that predicts on user inputs."""
    return TokenClassificationPredictor
