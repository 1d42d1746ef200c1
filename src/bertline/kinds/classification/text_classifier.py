"""Base class of single-label and multi-label classification: a linear layer on the pooled [CLS]."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar, assert_never

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertline.finetuning import shared_tokens
from bertline.finetuning.encoding import (
    LengthSortedBatches,
    Sequences,
    Windows,
    encode_texts,
    encode_windows,
    outputs_in_batches,
)
from bertline.finetuning.task_kind import Batch, Batches, Calibration, HeadSettings, LossOptions, TaskKind
from bertline.finetuning.temperature import TEMPERATURE
from bertline.finetuning.token_marks import add_marked_types
from bertline.kinds.classification.config import ClassificationTaskConfig
from bertline.modeling.attention import AttentionKind
from bertline.modeling.bert import BertForSequenceClassification
from bertline.modeling.huggingface import load_classifier
from bertline.tasks.stored_rows import MultiLabelRows, TextRows
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Machine

ClassifiedRows = TypeVar("ClassifiedRows", TextRows, MultiLabelRows)


@dataclass(frozen=True, slots=True)
class EncodedTexts:
    """Encoded rows with their labels."""

    windows: Windows
    labels: NDArray[np.int64]
    """Label ids [N], or 0 and 1 for each label [N, L]."""

    @property
    def sequences(self) -> Sequences:
        """All sequences, one or more per row."""
        return self.windows.sequences


class TextClassifier(TaskKind[ClassifiedRows, EncodedTexts, NDArray[np.float32]]):
    """Classifies single texts and pairs (paper, section 4.1). Predictions are probabilities, [N, labels].

    A long text is truncated or split into windows (`long_texts`). In training, each window has the label of its row and
    is weighted by one over the number of the row's windows, so that a long text counts as much as a short one. In
    prediction, the probabilities of a row's windows are pooled by mean or maximum (arXiv 1905.09217, section 3). A text
    that fits is one window, encoded as with truncation.
    """

    config: ClassificationTaskConfig

    def new_model(self, folder: Path, head: HeadSettings) -> BertForSequenceClassification:
        """See `TaskKind.new_model`."""
        model = load_classifier(folder, num_labels=len(self.labels), **asdict(head))
        if self.config.shared_tokens == "marked":
            add_marked_types(model.bert, shared_tokens.NUM_MARKS)
        return model

    def load_model(self, folder: Path, *, attention: AttentionKind = "plain") -> BertForSequenceClassification:
        """See `TaskKind.load_model`."""
        return load_classifier(folder, attention=attention)

    def encode(self, rows: ClassifiedRows, tokenizer: Tokenizer) -> EncodedTexts:
        """See `TaskKind.encode`."""
        config = self.config
        match config.long_texts:
            case "windows":
                windows = encode_windows(
                    rows.texts,
                    rows.text_pairs,
                    tokenizer,
                    max_length=config.max_length,
                    overlap=config.window_overlap,
                )
            case "truncate":
                sequences = encode_texts(rows.texts, rows.text_pairs, tokenizer, max_length=config.max_length)
                windows = Windows(sequences, np.arange(len(rows), dtype=np.int64))
            case _:
                assert_never(config.long_texts)
        if config.shared_tokens == "marked":
            windows = Windows(shared_tokens.with_shared_marked(windows.sequences, tokenizer), windows.row_starts)
        return EncodedTexts(windows, rows.labels)

    def num_cut(self, encoded: EncodedTexts) -> int:
        """See `TaskKind.num_cut`."""
        return int(encoded.windows.cut.sum())

    def training_batches(self, encoded: EncodedTexts, *, batch_size: int, seed: int) -> Batches:
        """Return batches of windows with their rows' `labels` and `weights` [B], whose mean over all windows is 1."""
        row_of, num_windows = encoded.windows.row_of, encoded.windows.num_windows
        # Not normalized per batch: windows of long texts all have the same length and share batches.
        weights = (1 / num_windows * num_windows.mean())[row_of].astype(np.float32)

        def make(indices: NDArray[np.integer]) -> Batch:
            return {
                **encoded.sequences.batch(indices),
                "labels": torch.from_numpy(encoded.labels[row_of[indices]]),
                "weights": torch.from_numpy(weights[indices]),
            }

        return LengthSortedBatches(encoded.sequences.lengths, make, batch_size=batch_size, seed=seed)

    def loss(self, model: nn.Module, batch: Batch, options: LossOptions) -> Tensor:
        """See `TaskKind.loss`."""
        logits = model(batch["input_ids"], batch["token_type_ids"], batch["attention_mask"])
        return self.loss_of_logits(logits.float(), batch, options)

    @abstractmethod
    def loss_of_logits(self, logits: Tensor, batch: Batch, options: LossOptions) -> Tensor:
        """Compute the mean loss from logits [B, labels]."""

    @abstractmethod
    def probabilities(self, logits: Tensor) -> Tensor:
        """Compute the probability of each label from logits [B, labels]."""

    @abstractmethod
    def with_temperature(self, probabilities: NDArray[np.float32], temperature: float) -> NDArray[np.float32]:
        """Rescale probabilities [N, labels] as if the logits had been divided by the temperature."""

    def calibrated(self, predictions: NDArray[np.float32], calibration: Calibration) -> NDArray[np.float32]:
        """Apply the temperature chosen on dev, if any. Returns the probabilities that users see."""
        temperature = calibration.get(TEMPERATURE)
        return predictions if temperature is None else self.with_temperature(predictions, temperature)

    def calibration_errors(
        self, predictions: NDArray[np.float32], calibration: Calibration, error: Callable[..., float]
    ) -> dict[str, float]:
        """Return the expected calibration error without (`before`) and, if there is a temperature, with it (`after`).

        Args:
            predictions: The model's predictions before temperature scaling.
            calibration: The calibration chosen on dev.
            error: Computes the error of probabilities [N, labels].
        """
        errors = {"before": error(predictions)}
        if TEMPERATURE in calibration:
            errors["after"] = error(self.calibrated(predictions, calibration))
        return errors

    def predict(self, model: nn.Module, encoded: EncodedTexts, machine: Machine) -> NDArray[np.float32]:
        """See `TaskKind.predict`."""
        of_windows = np.zeros((len(encoded.sequences), len(self.labels)), dtype=np.float32)
        for indices, found in outputs_in_batches(model, encoded.sequences, machine, self.probabilities):
            of_windows[indices] = found
        return self.pooled(of_windows, encoded.windows)

    def pooled(self, of_windows: NDArray[np.float32], windows: Windows) -> NDArray[np.float32]:
        """Pool the probabilities of windows [W, labels] to those of rows [N, labels]."""
        if len(windows.row_starts) == len(of_windows):
            return of_windows
        match self.config.window_pooling:
            case "mean":
                sums = np.add.reduceat(of_windows, windows.row_starts, axis=0)
                return (sums / windows.num_windows[:, None]).astype(np.float32)
            case "max":
                return np.maximum.reduceat(of_windows, windows.row_starts, axis=0)
            case _:
                assert_never(self.config.window_pooling)
