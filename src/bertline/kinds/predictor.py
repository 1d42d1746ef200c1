"""Predictors: a kind of task with a trained model, which together answer users."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Self

import pyarrow as pa
import torch
from torch import nn

from bertline.foundation.errors import ArtifactError
from bertline.kinds.base import Calibration, FileColumns, InputColumn, TaskKind
from bertline.kinds.classification import LabelsPrediction
from bertline.kinds.label_sets import LABEL_SETS, LabelSets
from bertline.tasks.stored_rows import StoredRows
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Machine, Ranks

# Tokens per batch, padding included. CPU: one layer fits the cache of a core. GPU: keeps it busy (not measured).
_TOKENS_ON_CPU = 512
_TOKENS_ELSEWHERE = 1 << 14


class RowPredictor(ABC):
    """Prediction of columns for the rows of a file or of a request."""

    tokenizer: Any
    """A `Tokenizer`; None for a model without an encoder."""
    num_cut = 0
    """Number of rows so far that were truncated to the model's maximum length."""
    num_documents_cut = 0
    """Number of truncated documents so far, of a task that searches documents."""

    def for_thread(self) -> Self:
        """Return a copy for another thread, with shared weights and its own count of truncated inputs."""
        copied = copy.copy(self)
        # Encoding temporarily changes a setting of the tokenizer, so each thread has its own.
        copied.tokenizer = self.tokenizer and self.tokenizer.copy()
        copied.num_cut = copied.num_documents_cut = 0
        return copied

    @abstractmethod
    def file_inputs(self, columns: FileColumns) -> list[InputColumn]:
        """Return the columns to read from a file, in the order of the arguments of `file_outputs`."""

    @abstractmethod
    def output_schema(self) -> pa.Schema:
        """Return the schema of the columns that are added to those of the input."""

    @abstractmethod
    def file_outputs(self, *inputs: list[Any]) -> list[dict[str, Any]]:
        """Predict the added columns of some rows."""


class TaskPredictor(RowPredictor):
    """A fine-tuned model with its task, for prediction."""

    num_probabilities: int | None = None
    """Number of labels that a classifier lists in a file with their probabilities; None lists all."""
    label_sets: LabelSets | None = None
    """From which a classifier with one label a row makes sets of labels; None: it has none."""
    lowest_probability: float | None = None
    """Probability from which on a label is in a text's set of labels; None: no sets are asked for."""

    def __init__(
        self, kind: TaskKind[Any, Any, Any], calibration: Calibration, model: nn.Module, tokenizer: Tokenizer
    ) -> None:
        self.kind: Any = kind
        self.calibration = calibration
        self.model = model
        self.tokenizer = tokenizer
        # As in evaluation, but always in fp32, so that predictions do not depend on the machine.
        device: torch.device = next(model.parameters()).device
        tokens = _TOKENS_ON_CPU if device.type == "cpu" else _TOKENS_ELSEWHERE
        self.machine = Machine(device=device, precision="fp32", compile=False, ranks=Ranks(), scoring_tokens=tokens)

    def predict(self, *inputs: Any, coverage: float | None = None, **named: Any) -> list[Any]:
        """Return the prediction for each input, in order; with `coverage`, a set of labels."""
        predicted = self.kind.serve(covering := self.covering(coverage), *inputs, **named)
        if coverage is None:
            return predicted
        return [LabelsPrediction(tuple(covering.label_set(one.probabilities)), one.probabilities) for one in predicted]

    def covering(self, coverage: float | None) -> Self:
        """Return a copy whose sets of labels hold the right one for this share of texts; None: without sets."""
        if coverage is None:
            return self
        if self.label_sets is None:
            raise ArtifactError(
                f"coverage is for classification with one label a row: the folder of this model has no {LABEL_SETS}, "
                "which bertline finetune writes then. Fine-tune it again, or leave coverage out."
            )
        copied = copy.copy(self)
        copied.lowest_probability = self.label_sets.lowest_probability(coverage)
        return copied

    def label_set(self, probabilities: Mapping[str, float]) -> list[str]:
        """Return the labels that are likely enough, in label order; none may be."""
        return [label for label, each in probabilities.items() if each >= (self.lowest_probability or 0.0)]

    def file_inputs(self, columns: FileColumns) -> list[InputColumn]:
        return self.kind.file_inputs(columns)

    def output_schema(self) -> pa.Schema:
        has_sets = self.lowest_probability is not None
        return pa.schema([*self.kind.output_schema, *[pa.field("label_set", pa.list_(pa.string()))] * has_sets])

    def file_outputs(self, *inputs: list[Any]) -> list[dict[str, Any]]:
        return self.kind.file_outputs(self, *inputs)

    def predictions(self, rows: StoredRows) -> Any:
        encoded = self.kind.encode(rows, self.tokenizer)
        self.num_cut += self.kind.num_cut(encoded)
        return self.kind.predict(self.model, encoded, self.machine)


class LinearTaskPredictor(TaskPredictor):
    """A linear model with its task, for prediction; it has no encoder and reads texts of any length."""

    def __init__(
        self, kind: TaskKind[Any, Any, Any], calibration: Calibration, predicted: Callable[[StoredRows], Any]
    ) -> None:
        self.kind, self.calibration, self.tokenizer, self._predicted = kind, calibration, None, predicted

    def predictions(self, rows: StoredRows) -> Any:
        return self._predicted(rows)
