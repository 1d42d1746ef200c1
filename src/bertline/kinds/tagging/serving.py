"""Tagging of every word of a text."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from bertline.inference.predictor import Places, WordsPredictor


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


class TaggingPredictor(WordsPredictor):
    """Tagging that returns every word of a text with its tag."""

    def of_tags(self, text: str, places: Places, tags: list[str], scores: list[float]) -> list[TaggedWord]:
        return [
            TaggedWord(text[start:end], tag, start, end, score)
            for (start, end), tag, score in zip(places, tags, scores, strict=True)
        ]

    def output_schema(self) -> pa.Schema:
        fields = [("text", pa.string()), ("tag", pa.string()), ("start", pa.int64()), ("end", pa.int64())]
        return pa.schema([("words", pa.list_(pa.struct([*fields, ("score", pa.float64())])))])

    def file_outputs(self, *inputs: list[Any]) -> list[dict[str, Any]]:
        return [{"words": [word._asdict() for word in of_text]} for of_text in self.predict(inputs[0])]


predictor = TaggingPredictor
