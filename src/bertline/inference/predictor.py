"""A fine-tuned model with its task, for prediction on the inputs of users."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, Self

import pyarrow as pa
import torch
from torch import nn

from bertline.kinds.base import Calibration, FileColumns, InputColumn, TaskKind
from bertline.tasks.stored_rows import StoredRows
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Machine, Ranks

# Tokens per batch, padding included. CPU: one layer fits the cache of a core. GPU: keeps it busy (not measured).
_TOKENS_ON_CPU = 512
_TOKENS_ELSEWHERE = 1 << 14


class RowPredictor(ABC):
    """Prediction of columns for the rows of a file or of a request."""

    tokenizer: Tokenizer
    num_cut = 0
    """Number of rows so far that were truncated to the model's maximum length."""

    def for_thread(self) -> Self:
        """Return a copy for another thread, with shared weights and its own count of truncated inputs."""
        copied = copy.copy(self)
        # Encoding temporarily changes a setting of the tokenizer, so each thread has its own.
        copied.tokenizer = self.tokenizer.copy()
        copied.num_cut = 0
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
    num_documents_cut = 0
    """Number of truncated documents so far, of a task that searches documents."""

    def __init__(
        self, kind: TaskKind[Any, Any, Any], calibration: Calibration, model: nn.Module, tokenizer: Tokenizer
    ) -> None:
        self.kind: Any = kind
        self.calibration = calibration
        self.model = model
        self.tokenizer = tokenizer
        # As in evaluation, but always in fp32, so that predictions do not depend on the machine.
        device: torch.device = next(model.parameters()).device
        self.machine = Machine(
            device=device,
            precision="fp32",
            compile=False,
            ranks=Ranks(),
            scoring_tokens=_TOKENS_ON_CPU if device.type == "cpu" else _TOKENS_ELSEWHERE,
        )

    def for_thread(self) -> Self:
        copied = super().for_thread()
        copied.num_documents_cut = 0
        return copied

    def predict(self, *inputs: Any, **named: Any) -> list[Any]:
        """Return the prediction for each input, in order."""
        return self.kind.serve(self, *inputs, **named)

    def file_inputs(self, columns: FileColumns) -> list[InputColumn]:
        return self.kind.file_inputs(columns)

    def output_schema(self) -> pa.Schema:
        return self.kind.output_schema

    def file_outputs(self, *inputs: list[Any]) -> list[dict[str, Any]]:
        return self.kind.file_outputs(self, *inputs)

    def predictions(self, rows: StoredRows) -> Any:
        """Encode rows, count truncated ones, and return the result of `TaskKind.predict`."""
        encoded = self.kind.encode(rows, self.tokenizer)
        self.num_cut += self.kind.num_cut(encoded)
        return self.kind.predict(self.model, encoded, self.machine)
