"""What fine-tuning, sweep, prediction and export need to know of a use of BERT, and nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor, nn

from bertline.modeling.attention import AttentionKind
from bertline.tasks.config import TaskConfig
from bertline.tasks.storage import SplitName, read_rows
from bertline.tasks.stored_rows import StoredRows
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Machine

Rows = TypeVar("Rows", bound=StoredRows)
Encoded = TypeVar("Encoded")
Predictions = TypeVar("Predictions")

Batch = dict[str, Tensor]
Calibration = dict[str, float]
"""Numbers that dev decides and that are part of the model from then on (the no-answer threshold)."""


class Batches(Sized, Protocol):
    """The batches of one epoch; each pass over them is another epoch, in another order that the seed decides."""

    def __iter__(self) -> Iterator[Batch]:
        """The batches of the next epoch."""
        ...


@dataclass(frozen=True, slots=True)
class HeadSettings:
    """What a new head is made with."""

    dropout_prob: float
    """Of the head's input and of the encoder."""
    seed: int
    """Of the head's weights."""
    attention: AttentionKind


@dataclass(frozen=True, slots=True)
class LossOptions:
    """What a loss is computed with, apart from model and batch."""

    label_smoothing: float
    class_weights: Tensor | None
    """[labels], on the model's device; None weighs all the same."""

    @staticmethod
    def plain() -> LossOptions:
        """No smoothing, no weights."""
        return LossOptions(0.0, None)


class TaskKind(ABC, Generic[Rows, Encoded, Predictions]):
    """One use of BERT on one task.

    Args:
        config: Of the task.
        labels: The manifest's labels, in their order; empty for a task without labels.

    The unit of scoring is a row of `Rows`: `statistics` gives each row's share in every score, and `scores` makes the
    scores of any set of rows from their statistics, so that intervals and tests resample rows without predicting again.
    """

    rows_class: type[Rows]
    """How the rows of a split are stored."""

    def __init__(self, config: TaskConfig, labels: Sequence[str]) -> None:
        self.config: Any = config
        self.labels = tuple(labels)

    def read(self, task_folder: Path, split: SplitName) -> Rows:
        """The rows of a split of the task's artifact."""
        return read_rows(task_folder, split, self.rows_class)

    # ---- the model

    @abstractmethod
    def new_model(self, folder: Path, head: HeadSettings) -> nn.Module:
        """The encoder of any BERT folder under a new head. The encoder is the submodule `bert`."""

    @abstractmethod
    def load_model(self, folder: Path, *, attention: AttentionKind = "plain") -> nn.Module:
        """A finished model from a folder that `save_model` wrote."""

    @abstractmethod
    def save_model(self, model: nn.Module, folder: Path) -> None:
        """config.json and weights under the names of Hugging Face's class for this use."""

    def has_new_head(self, model: nn.Module) -> bool:
        """Whether `new_model` drew weights that mean nothing before they are trained."""
        return any(not name.startswith("bert.") for name, _ in model.named_parameters())

    # ---- training

    @abstractmethod
    def encode(self, rows: Rows, tokenizer: Tokenizer) -> Encoded:
        """Rows as token ids; what is too long is cut or windowed here."""

    @abstractmethod
    def lengths(self, encoded: Encoded) -> NDArray[np.int64]:
        """Tokens of each sequence, for choosing how attention is computed and for counting tokens."""

    @abstractmethod
    def num_cut(self, encoded: Encoded) -> int:
        """How many rows lost tokens because they are longer than the model reads; what windows hold is not lost."""

    def num_cut_documents(self, encoded: Encoded) -> int | None:
        """The same of the collection that the rows are searched in; None where there is none."""
        return None

    @abstractmethod
    def training_batches(self, encoded: Encoded, *, batch_size: int, seed: int) -> Batches:
        """Batches of like length, in an order that is a function of the seed and the number of the epoch."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch, options: LossOptions) -> Tensor:
        """The mean loss of a batch, which is on the model's device."""

    @property
    def unused_options(self) -> dict[str, str]:
        """Options of the loss that mean nothing for this use, each with the reason: to set one is an error."""
        return {"class_weights": "it has no classes to weigh"}

    def label_counts(self, rows: Rows) -> NDArray[np.int64]:
        """How often each label stands in the rows, for `class_weights`, unless that is among `unused_options`."""
        raise NotImplementedError

    def prepared(self, model: nn.Module, encoded: Encoded, rows: Rows, machine: Machine) -> Encoded:
        """Training data after whatever needs the untrained model, such as mining hard negatives."""
        return encoded

    # ---- predicting and scoring

    @abstractmethod
    def predict(self, model: nn.Module, encoded: Encoded, machine: Machine) -> Predictions:
        """What the model says of each row, in the order of the rows; NumPy and lists, no tensors."""

    def calibrate(self, rows: Rows, predictions: Predictions) -> Calibration:
        """Numbers that dev decides; most uses have none."""
        return {}

    @abstractmethod
    def statistics(self, rows: Rows, predictions: Predictions, calibration: Mapping[str, float]) -> NDArray[np.float64]:
        """Each row's share in the scores, [N, K]."""

    @abstractmethod
    def scores(self, statistics: NDArray[np.float64]) -> dict[str, float]:
        """Every score of the task by name, from the statistics of any rows; higher is better. Has `config.metric`."""

    @abstractmethod
    def table(self, rows: Rows, predictions: Predictions, calibration: Mapping[str, float]) -> pa.Table:
        """For people and for analysis, a row each: `id`, the inputs, `gold`, `predicted` (texts), `score` (how sure),
        `correct` (bool or, where being right has degrees, a float up to 1)."""

    def details(self, rows: Rows, predictions: Predictions, calibration: Mapping[str, float]) -> dict[str, Any]:
        """More for the report, as JSON: `confusion_matrix` (with `labels`), `by_type` scores, `before` re-ranking."""
        return {}

    def is_degenerate(self, rows: Rows, predictions: Predictions, calibration: Mapping[str, float]) -> bool:
        """Whether the model says the same of every row: a failed run (arXiv 2006.04884), to be counted."""
        return False
