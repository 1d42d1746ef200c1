"""Extractive summarisation: the vector of each sentence's own [CLS] predicts whether it belongs in the summary.

References:
    Liu 2019, arXiv 1903.10318, section 2.1 (a [CLS] and an interval segment for each sentence) and 2.2 (the simple
    classifier); Liu and Lapata 2019, arXiv 1908.08345, sections 3.1 and 3.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from bertline.finetuning.sentence_groups import EncodedSentences, OfSentences, SentenceReader, encode_documents
from bertline.finetuning.task_kind import Batch, Calibration, LossOptions, Statistics
from bertline.foundation.labels import IGNORED_LABEL
from bertline.tasks.metrics.rouge import rouge
from bertline.tasks.stored_rows import SummaryRows
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Machine


class Summarisation(SentenceReader[SummaryRows]):
    """Selects the `num_sentences` sentences with the highest probabilities, in document order.

    Predictions are the probabilities of each document's sentences. Training uses the first group of each document.
    """

    rows_class = SummaryRows
    outputs = ("summary",)
    score_names = ("rouge1", "rouge2", "rougeL")

    def encode(self, rows: SummaryRows, tokenizer: Tokenizer) -> EncodedSentences:
        return encode_documents(rows.sentences, rows.chosen, tokenizer, max_length=self.config.max_length)

    def trained_on(self, encoded: EncodedSentences) -> NDArray[np.int64]:
        return np.flatnonzero(encoded.is_first)

    def hard_loss(self, model: nn.Module, outputs: Tensor, batch: Batch, options: LossOptions) -> Tensor:
        """Compute the mean binary cross-entropy over the sentences of the batch, weighted by class weights if given."""
        logits = outputs[..., 0].float()
        labelled = batch["labels"] != IGNORED_LABEL
        labels = batch["labels"][labelled]
        targets = labels.float() * (1 - options.label_smoothing) + options.label_smoothing / 2
        weights = None if options.class_weights is None else options.class_weights[labels]
        losses = F.binary_cross_entropy_with_logits(logits[labelled], targets, weight=weights, reduction="sum")
        return losses / (len(labels) if weights is None else weights.sum())

    def label_counts(self, rows: SummaryRows) -> NDArray[np.int64]:
        """Return the number of sentences outside and inside the summaries."""
        return np.bincount([label for chosen in rows.chosen for label in chosen], minlength=2)

    def predict(self, model: nn.Module, encoded: EncodedSentences, machine: Machine) -> OfSentences:
        return [found[:, 0] for found in self.probabilities(model, encoded, machine, torch.sigmoid)]

    def statistics(self, rows: SummaryRows, predictions: OfSentences, calibration: Calibration) -> Statistics:
        """Return the F1 of ROUGE-1, ROUGE-2 and ROUGE-L, [N, 3]."""
        return _rouge_of(rows, self._chosen(predictions))

    def table(self, rows: SummaryRows, predictions: OfSentences, calibration: Calibration) -> pa.Table:
        """See `TaskKind.table`: `score` is the mean probability of the chosen sentences, `correct` is ROUGE-1."""
        chosen = self._chosen(predictions)
        return pa.table(
            {
                "id": rows.ids,
                "text": [" ".join(sentences) for sentences in rows.sentences],
                "gold": rows.summaries,
                "predicted": [_joined(*pair) for pair in zip(rows.sentences, chosen, strict=True)],
                "score": [float(of_row[places].mean()) for of_row, places in zip(predictions, chosen, strict=True)],
                "correct": _rouge_of(rows, chosen)[:, 0],
            }
        )

    def details(self, rows: SummaryRows, predictions: OfSentences, calibration: Calibration) -> dict[str, Any]:
        """Return `oracle`: the scores of the gold sentences that training uses as targets."""
        return {"oracle": self.scores(_rouge_of(rows, [np.flatnonzero(chosen) for chosen in rows.chosen]))}

    def is_degenerate(self, rows: SummaryRows, predictions: OfSentences, calibration: Calibration) -> bool:
        """Return whether every sentence has the same probability, up to rounding."""
        every = np.concatenate(predictions)
        return len(every) > 1 and float(every.max() - every.min()) < 1e-4

    def _chosen(self, predictions: OfSentences) -> list[NDArray[np.int64]]:
        """Return the indices of the best sentences of each document, ascending; ties go to the first."""
        return [np.sort(np.argsort(-scores, kind="stable")[: self.config.num_sentences]) for scores in predictions]


def _joined(sentences: Sequence[str], chosen: NDArray[np.int64]) -> str:
    return " ".join(sentences[place] for place in chosen)


def _rouge_of(rows: SummaryRows, chosen: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    found = (
        rouge(_joined(sentences, places), summary)
        for sentences, places, summary in zip(rows.sentences, chosen, rows.summaries, strict=True)
    )
    names = Summarisation.score_names
    return np.array([[scores[name] for name in names] for scores in found]).reshape(-1, len(names))


task_kind = Summarisation
