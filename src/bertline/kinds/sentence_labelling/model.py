"""Labelling of sentences in context: the vector of each sentence's own [CLS] predicts its label.

References:
    Cohan et al. 2019, arXiv 1909.04054 (all sentences in one sequence; there a [SEP] stands for its sentence).
    Liu 2019, arXiv 1903.10318, section 2.1 (a [CLS] for each sentence).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertline.finetuning.sentence_groups import EncodedSentences, OfSentences, SentenceReader, encode_documents
from bertline.finetuning.task_kind import Batch, Calibration, LossOptions, Statistics
from bertline.kinds.sentence_labelling.data import SentenceRows
from bertline.tasks.metrics.classification import counts_by_label, row_counts, scores_of_counts
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Machine


class SentenceLabelling(SentenceReader[SentenceRows]):
    """Predicts a label for each sentence. Predictions are the probabilities of each document's sentences and labels."""

    rows_class = SentenceRows
    # Most sentences of a document are labelled correctly, so a single wrong one makes the document an error.
    right_from = 1.0

    def encode(self, rows: SentenceRows, tokenizer: Tokenizer) -> EncodedSentences:
        return encode_documents(rows.sentences, rows.labels, tokenizer, max_length=self.config.max_length)

    def hard_loss(self, model: nn.Module, outputs: Tensor, batch: Batch, options: LossOptions) -> Tensor:
        """Compute the mean cross-entropy over the sentences of the batch."""
        return options.cross_entropy(outputs, batch["labels"])

    def label_counts(self, rows: SentenceRows) -> NDArray[np.int64]:
        return np.bincount([label for labels in rows.labels for label in labels], minlength=len(self.labels))

    def predict(self, model: nn.Module, encoded: EncodedSentences, machine: Machine) -> OfSentences:
        return self.probabilities(model, encoded, machine, partial(torch.softmax, dim=-1))

    def statistics(self, rows: SentenceRows, predictions: OfSentences, calibration: Calibration) -> Statistics:
        """Return for each label the number of hits, of predicted and of gold sentences, [N, 3 labels]."""
        counts = [
            row_counts(np.array(gold, dtype=np.int64), found.argmax(1), len(self.labels))
            for gold, found in zip(rows.labels, predictions, strict=True)
        ]
        return np.array(counts).reshape(len(rows), 3 * len(self.labels))

    def scores(self, statistics: Statistics) -> dict[str, float]:
        return scores_of_counts(statistics)

    def table(self, rows: SentenceRows, predictions: OfSentences, calibration: Calibration) -> pa.Table:
        """See `TaskKind.table`: `gold` and `predicted` are lists, `score` is the mean probability of the labels."""
        texts = pa.list_(pa.string())
        predicted = [found.argmax(1) for found in predictions]
        return pa.table(
            {
                "id": rows.ids,
                "text": rows.texts_read(),
                "sentences": pa.array(rows.sentences, texts),
                "gold": pa.array([self._names(labels) for labels in rows.labels], texts),
                "predicted": pa.array([self._names(labels) for labels in predicted], texts),
                "score": [float(found.max(1).mean()) for found in predictions],
                "correct": [
                    float(np.mean(found == np.array(gold))) for found, gold in zip(predicted, rows.labels, strict=True)
                ],
            }
        )

    def details(self, rows: SentenceRows, predictions: OfSentences, calibration: Calibration) -> dict[str, Any]:
        """Return precision, recall and F1 of each label."""
        return {"by_type": counts_by_label(self.statistics(rows, predictions, calibration), self.labels)}

    def is_degenerate(self, rows: SentenceRows, predictions: OfSentences, calibration: Calibration) -> bool:
        """Return whether every sentence gets the same label."""
        return len({int(label) for found in predictions for label in found.argmax(1)}) <= 1

    def _names(self, labels: Sequence[int] | NDArray[np.integer]) -> list[str]:
        return [self.labels[label] for label in labels]


task_kind = SentenceLabelling
