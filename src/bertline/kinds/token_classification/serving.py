"""Token classification: entities in text."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from bertline.inference.predictor import Places, WordsPredictor
from bertline.tasks.metrics.entities import entities


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


class TokenClassificationPredictor(WordsPredictor):
    """Token classification that returns the entities of a text, in text order."""

    def of_tags(self, text: str, places: Places, tags: list[str], scores: list[float]) -> list[Entity]:
        found = []
        for kind, first, last in sorted(entities(tags), key=lambda entity: entity[1]):
            start, end = places[first][0], places[last][1]
            found.append(Entity(kind, text[start:end], start, end, min(scores[first : last + 1])))
        return found

    def output_schema(self) -> pa.Schema:
        fields = [("type", pa.string()), ("text", pa.string()), ("start", pa.int64()), ("end", pa.int64())]
        return pa.schema([("entities", pa.list_(pa.struct([*fields, ("score", pa.float64())])))])

    def file_outputs(self, *inputs: list[Any]) -> list[dict[str, Any]]:
        found = self.predict(inputs[0])
        return [{"entities": [entity._asdict() for entity in of_text]} for of_text in found]


predictor = TokenClassificationPredictor
