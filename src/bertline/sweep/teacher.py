"""The teacher of a task: what it must have in common with its student, its soft targets, and its own scores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from bertline.finetuning.task_file import FinishedTask, read_teacher
from bertline.foundation.errors import ConfigError
from bertline.foundation.files import folder_written_atomically
from bertline.foundation.progress import say
from bertline.kinds.base import TaskKind
from bertline.modeling.huggingface import read_config
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Machine

# What decides what a model reads and what its outputs mean; other settings may differ.
_SHARED = ("kind", "head", "multi_label", "low", "high", "similarity", "shared_tokens", "word_case")
_FILE = "soft_targets.npy"


class Teacher:
    """A fine-tuned model of the task `kind` as the student reads it, of any family with the student's `tokenizer`.

    Raises:
        ConfigError: The folder is not fine-tuned, or its outputs do not mean what the student's do.
    """

    def __init__(self, folder: Path, kind: TaskKind[Any, Any, Any], tokenizer: Tokenizer) -> None:
        self.folder, self.kind = folder, kind
        self.finished: FinishedTask = read_teacher(folder)
        theirs = self.finished.kind
        if type(kind).soft_loss is TaskKind.soft_loss:
            raise ConfigError(f"a task of the kind {kind.config.kind} learns from no teacher. Set teacher to null.")
        vocabulary = Tokenizer.load(folder).vocab
        if vocabulary != tokenizer.vocab:
            raise ConfigError(
                f"teacher {folder} has another vocabulary ({len(vocabulary):,} tokens) than its student "
                f"({tokenizer.vocab_size:,}): its soft targets are of token ids that mean other tokens there. Start "
                "from an encoder with the teacher's vocabulary, such as its own layers (student_layers)."
            )
        pairs = {name: (getattr(theirs.config, name, None), getattr(kind.config, name, None)) for name in _SHARED}
        pairs["labels"] = theirs.labels, kind.labels
        for name, (of_teacher, of_student) in pairs.items():
            if of_teacher != of_student:
                raise ConfigError(
                    f"teacher {folder} was fine-tuned with {name} {of_teacher!r}, and this task has {of_student!r}. "
                    "Fine-tune the teacher on this task, or set the task as it was."
                )
        positions = read_config(folder)[0].max_position_embeddings
        if positions < kind.config.max_length:
            raise ConfigError(
                f"teacher {folder} has positions for {positions} tokens; set the task's max_length, "
                f"{kind.config.max_length}, to no more."
            )

    def soft_targets(self, encoded: Any, machine: Machine, place: Path) -> NDArray[np.float32]:
        """Return the soft targets of rows, from a folder that the first call of all processes writes."""
        if not place.exists():
            say(f"{place.name}: the teacher computes its soft targets")
            soft = self.kind.soft_targets(self._model(machine), encoded, replace(machine, precision="fp32"))
            with folder_written_atomically(place) as folder:
                np.save(folder / _FILE, soft)
        return np.load(place / _FILE, mmap_mode="r", allow_pickle=False)

    def scores(self, rows: Any, encoded: Any, machine: Machine) -> dict[str, float]:
        """Return its own scores, in fp32 as it serves."""
        predictions = self.kind.predict(self._model(machine), encoded, replace(machine, precision="fp32"))
        return self.kind.scores(self.kind.statistics(rows, predictions, self.finished.calibration))

    def _model(self, machine: Machine) -> nn.Module:
        return self.kind.load_model(self.folder).to(machine.device)
