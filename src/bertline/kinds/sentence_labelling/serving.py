"""Labelling of the sentences of documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from bertline.inference.predictor import FileColumns, InputColumn, TaskPredictor, row_ids, split_documents
from bertline.kinds.sentence_labelling.data import SentenceRows


class LabelledSentence(NamedTuple):
    """Sentence of a document with its predicted label."""

    text: str
    label: str
    probability: float


class SentenceLabellingPredictor(TaskPredictor):
    """Labelling of each sentence, with the others of its document as context."""

    def predict(self, texts: Sequence[str] | Sequence[Sequence[str]]) -> list[list[LabelledSentence]]:  # type: ignore[override]
        """Return the sentences of each document with their labels.

        Args:
            texts: Documents, which are split into sentences; or lists of sentences, which are used as given.

        Raises:
            DataError: A document has no sentences.
        """
        documents = split_documents(texts)
        if not documents:
            return []
        unknown = [[0] * len(sentences) for sentences in documents]
        predictions = self.predictions(SentenceRows(row_ids(len(documents)), documents, unknown))
        return [
            [
                LabelledSentence(sentence, self.kind.labels[label], float(row[label]))
                for sentence, row, label in zip(sentences, probabilities, probabilities.argmax(1), strict=True)
            ]
            for sentences, probabilities in zip(documents, predictions, strict=True)
        ]

    def file_inputs(self, columns: FileColumns) -> list[InputColumn]:
        return [InputColumn(columns.text, "text or texts", may_be_empty=False)]

    def output_schema(self) -> pa.Schema:
        fields = [("text", pa.string()), ("label", pa.string()), ("probability", pa.float64())]
        return pa.schema([("labelled", pa.list_(pa.struct(fields)))])

    def file_outputs(self, *inputs: list[Any]) -> list[dict[str, Any]]:
        return [{"labelled": [each._asdict() for each in document]} for document in self.predict(inputs[0])]


predictor = SentenceLabellingPredictor
