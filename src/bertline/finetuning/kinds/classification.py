"""Classification of single passages and of pairs: a linear layer on the pooled [CLS] (paper, section 4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from bertline.finetuning.encoding import LengthSortedBatches, Sequences, encode_texts, scoring_batches
from bertline.finetuning.kinds.base import Batch, Batches, HeadSettings, LossOptions, TaskKind
from bertline.modeling.attention import AttentionKind
from bertline.modeling.bert import BertForSequenceClassification
from bertline.modeling.huggingface import load_classifier, save_model
from bertline.tasks.metrics import classification as metrics
from bertline.tasks.stored_rows import TextRows
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Machine
from bertline.training.evaluating import evaluating


@dataclass(frozen=True, slots=True)
class EncodedTexts:
    """Sequences and their labels."""

    sequences: Sequences
    labels: NDArray[np.int64]


class Classification(TaskKind[TextRows, EncodedTexts, NDArray[np.float32]]):
    """One label a row. Predictions are probabilities, [N, labels]."""

    rows_class = TextRows

    def new_model(self, folder: Path, head: HeadSettings) -> BertForSequenceClassification:
        return load_classifier(
            folder,
            num_labels=len(self.labels),
            dropout_prob=head.dropout_prob,
            seed=head.seed,
            attention=head.attention,
        )

    def load_model(self, folder: Path, *, attention: AttentionKind = "plain") -> BertForSequenceClassification:
        return load_classifier(folder, attention=attention)

    def save_model(self, model: nn.Module, folder: Path) -> None:
        save_model(model, folder, id2label=dict(enumerate(self.labels)))

    def encode(self, rows: TextRows, tokenizer: Tokenizer) -> EncodedTexts:
        sequences = encode_texts(rows.texts, rows.text_pairs, tokenizer, max_length=self.config.max_length)
        return EncodedTexts(sequences, rows.labels)

    def lengths(self, encoded: EncodedTexts) -> NDArray[np.int64]:
        return encoded.sequences.lengths

    def training_batches(self, encoded: EncodedTexts, *, batch_size: int, seed: int) -> Batches:
        def make(indices: NDArray[np.integer]) -> Batch:
            return {**encoded.sequences.batch(indices), "labels": torch.from_numpy(encoded.labels[indices])}

        return LengthSortedBatches(encoded.sequences.lengths, make, batch_size=batch_size, seed=seed)

    def loss(self, model: nn.Module, batch: Batch, options: LossOptions) -> Tensor:
        logits = model(batch["input_ids"], batch["token_type_ids"], batch["attention_mask"])
        return F.cross_entropy(
            logits.float(), batch["labels"], weight=options.class_weights, label_smoothing=options.label_smoothing
        )

    def label_counts(self, rows: TextRows) -> NDArray[np.int64]:
        return np.bincount(rows.labels, minlength=len(self.labels))

    def predict(self, model: nn.Module, encoded: EncodedTexts, machine: Machine) -> NDArray[np.float32]:
        probabilities = np.zeros((len(encoded.sequences), len(self.labels)), dtype=np.float32)
        with evaluating(model, machine) as forward:
            for indices, batch in scoring_batches(encoded.sequences):
                inputs = (batch[name].to(machine.device) for name in ("input_ids", "token_type_ids", "attention_mask"))
                probabilities[indices] = torch.softmax(forward(*inputs).float(), dim=-1).cpu().numpy()
        return probabilities

    def statistics(
        self, rows: TextRows, predictions: NDArray[np.float32], calibration: Mapping[str, float]
    ) -> NDArray[np.float64]:
        """[N, 2]: gold and predicted label."""
        return np.stack([rows.labels, predictions.argmax(axis=1)], axis=1).astype(np.float64)

    def scores(self, statistics: NDArray[np.float64]) -> dict[str, float]:
        gold, predicted = statistics.astype(np.int64).T
        matrix = metrics.confusion_matrix(gold, predicted, len(self.labels))
        return metrics.scores_of(matrix)

    def table(self, rows: TextRows, predictions: NDArray[np.float32], calibration: Mapping[str, float]) -> pa.Table:
        predicted = predictions.argmax(axis=1)
        return pa.table(
            {
                "id": rows.ids,
                "text": rows.texts,
                "text_pair": pa.nulls(len(rows), pa.string()) if rows.text_pairs is None else rows.text_pairs,
                "gold": [self.labels[label] for label in rows.labels],
                "predicted": [self.labels[label] for label in predicted],
                "score": predictions[np.arange(len(rows)), predicted].astype(np.float64),
                "correct": predicted == rows.labels,
                **{f"probability_{label}": predictions[:, i] for i, label in enumerate(self.labels)},
            }
        )

    def details(
        self, rows: TextRows, predictions: NDArray[np.float32], calibration: Mapping[str, float]
    ) -> dict[str, Any]:
        matrix = metrics.confusion_matrix(rows.labels, predictions.argmax(axis=1), len(self.labels))
        return {"confusion_matrix": matrix.tolist()}

    def is_degenerate(self, rows: TextRows, predictions: NDArray[np.float32], calibration: Mapping[str, float]) -> bool:
        return len(np.unique(predictions.argmax(axis=1))) == 1
