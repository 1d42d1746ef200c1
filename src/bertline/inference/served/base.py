"""What is common to all tasks that are served: how rows are predicted, and what a file of inputs looks like."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
import torch
from torch import nn

from bertline.finetuning.kinds.base import Calibration, TaskKind
from bertline.foundation.errors import DataError
from bertline.tasks.stored_rows import StoredRows
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Machine, Ranks


@dataclass(frozen=True, kw_only=True, slots=True)
class FileColumns:
    """Which columns of an input file are read; a task reads those of its kind. `.txt` files have only `text`.

    A column has a name, or, where the file has no header, a number from 0.
    """

    text: str | int = "text"
    text_pair: str | int | None = None
    """The second text, for a task of pairs."""
    question: str | int = "question"
    context: str | int = "context"
    query: str | int = "query"
    candidates: str | int = "candidates"
    """A list of texts (in CSV: as JSON)."""


@dataclass(frozen=True, slots=True)
class InputColumn:
    """A column that a task reads."""

    name: str | int
    holds: str
    """`text`, `texts` (a list) or `text or texts`."""
    may_be_empty: bool = True


# Tokens of a batch, padding included: what fits a core's cache for one layer; and what keeps a GPU busy (not measured).
_TOKENS_ON_CPU = 512
_TOKENS_ELSEWHERE = 1 << 14


class ServedTask(ABC):
    """A finished model on its device, with its task.

    Args:
        kind: Encodes, predicts, and knows the labels.
        calibration: What dev decided (thresholds).
        model: On its device, in evaluation mode.
        tokenizer: The model's own.
    """

    def __init__(
        self, kind: TaskKind[Any, Any, Any], calibration: Calibration, model: nn.Module, tokenizer: Tokenizer
    ) -> None:
        self.kind: Any = kind
        self.calibration = calibration
        self.model = model
        self.tokenizer = tokenizer
        # As evaluation does it, but always in fp32: what is served must not depend on the machine.
        device: torch.device = next(model.parameters()).device
        self.machine = Machine(
            device=device,
            precision="fp32",
            compile=False,
            ranks=Ranks(),
            scoring_tokens=_TOKENS_ON_CPU if device.type == "cpu" else _TOKENS_ELSEWHERE,
        )
        self.num_cut = 0
        """Of all rows so far, how many lost tokens because they are longer than the model reads."""
        self.num_probabilities: int | None = None
        """Number of labels that a classifier lists in a file with their probabilities; None lists all."""

    def for_thread(self) -> Self:
        """A copy of the task for another thread, with the same weights and its own count of truncated inputs."""
        task = copy.copy(self)
        # Encoding changes a setting of the tokenizer while it runs, so each thread has its own.
        task.tokenizer = Tokenizer(self.tokenizer.vocabulary)
        task.num_cut = 0
        return task

    @abstractmethod
    def predict(self, *inputs: Any) -> list[Any]:
        """What the model says of each input, in their order."""

    @abstractmethod
    def file_inputs(self, columns: FileColumns) -> list[InputColumn]:
        """The columns that are read of a file, in the order of the arguments of `file_outputs`."""

    @abstractmethod
    def output_schema(self) -> pa.Schema:
        """The columns that are written beside those of the input."""

    @abstractmethod
    def file_outputs(self, *inputs: list[Any]) -> list[dict[str, Any]]:
        """The new columns of some rows.

        Args:
            inputs: For each column of `file_inputs` its values.
        """

    def predictions(self, rows: StoredRows) -> Any:
        """What `TaskKind.predict` gives."""
        encoded = self.kind.encode(rows, self.tokenizer)
        self.num_cut += self.kind.num_cut(encoded)
        return self.kind.predict(self.model, encoded, self.machine)


def row_ids(count: int) -> list[str]:
    """Names for rows that have none."""
    return [str(number) for number in range(count)]


def require_texts(values: Any, name: str) -> list[str]:
    """The values as a list of strings.

    Raises:
        DataError: One string in place of a list, or something that is no string.
    """
    if isinstance(values, str):
        raise DataError(f"{name} is one string; expected a list of strings, such as [{values[:30]!r}].")
    for index, value in enumerate(values):
        if not isinstance(value, str):
            raise DataError(f"{name}[{index}] is {value!r}; expected a string.")
    return list(values)


def require_lists(values: Any, name: str) -> list[list[str]]:
    """The values as a list of lists of strings.

    Raises:
        DataError: Anything else.
    """
    if isinstance(values, str):
        raise DataError(f"{name} is one string; expected a list of lists of strings.")
    return [require_texts(value, f"{name}[{index}]") for index, value in enumerate(values)]


def require_pairs(first: Any, second: Any, names: tuple[str, str]) -> tuple[list[str], list[str]]:
    """Two lists of strings of equal length.

    Raises:
        DataError: They are not.
    """
    one, other = require_texts(first, names[0]), require_texts(second, names[1])
    if len(one) != len(other):
        raise DataError(f"{len(one)} {names[0]} and {len(other)} {names[1]}; expected one of each for each pair.")
    return one, other
