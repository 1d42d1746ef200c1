"""Data and device of a sweep process: each arm's rows, encoded with its own tokenizer, and the task's teacher."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bertline.finetuning.finetune import FineTuningJob, TaskSplit
from bertline.finetuning.task_file import read_teacher
from bertline.finetuning.task_kind import UNLABELLED, TaskKind
from bertline.foundation.errors import ConfigError
from bertline.foundation.files import folder_written_atomically
from bertline.foundation.progress import say, warn
from bertline.kinds.registry import kind_part
from bertline.modeling.huggingface import read_config
from bertline.sweep.job import Arm, EncoderStart, PlannedSweep, SweepJob
from bertline.sweep.space import Params, with_params
from bertline.tasks.stored_rows import SplitName, read_task_manifest
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.config import RuntimeConfig
from bertline.training.devices import Machine, Ranks, resolve_device, resolve_machine

LENGTHS = ("max_length", "query_max_length")
"""Task fields that limit the number of tokens of a sequence."""
# What decides what a teacher and its student read and what their outputs mean; other settings may differ.
_SHARED = ("kind", "head", "multi_label", "low", "high", "similarity", "shared_tokens", "word_case")
_SOFT_TARGETS = "soft_targets.npy"


class Teacher:
    """A fine-tuned model of the task `kind` as the student reads it, of any family with the student's `tokenizer`.

    Raises:
        ConfigError: The folder is not fine-tuned, or its outputs do not mean what the student's do.
    """

    def __init__(self, folder: Path, kind: TaskKind[Any, Any, Any], tokenizer: Tokenizer) -> None:
        self.folder, self.kind, self.finished = folder, kind, read_teacher(folder)
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
                np.save(folder / _SOFT_TARGETS, soft)
        return np.load(place / _SOFT_TARGETS, mmap_mode="r", allow_pickle=False)

    def scores(self, rows: Any, encoded: Any, machine: Machine) -> dict[str, float]:
        """Return its own scores, in fp32 as it serves."""
        predictions = self.kind.predict(self._model(machine), encoded, replace(machine, precision="fp32"))
        return self.kind.scores(self.kind.statistics(rows, predictions, self.finished.calibration))

    def _model(self, machine: Machine) -> nn.Module:
        return self.kind.load_model(self.folder).to(machine.device)


class ArmBench:
    """Task data of one arm: the rows of each split and their encoding, loaded once; with a teacher its soft targets."""

    def __init__(self, job: SweepJob, start: EncoderStart, machine: Machine, teacher: str | None = None) -> None:
        self._job, self.start, self._machine = job, start, machine
        self.kind: TaskKind[Any, Any, Any] = kind_of(job, start)
        self._tokenizer = Tokenizer.load(start.folder)
        self.teacher = None if teacher is None else Teacher(Path(teacher), self.kind, self._tokenizer)
        self._splits: dict[tuple[SplitName, int | None], TaskSplit] = {}

    def split(self, name: SplitName, num_rows: int | None = None) -> TaskSplit:
        """Return a split, or its first `num_rows` rows."""
        if (name, num_rows) not in self._splits:
            rows = self.kind.read(self._job.task_folder, name).first(num_rows)
            encoded, soft = self.kind.encode(rows, self._tokenizer), None
            if self.teacher is not None and name in ("train", UNLABELLED):
                place = self._job.run_folder / "teacher" / f"{name}-{num_rows or 'all'}"
                soft = self.teacher.soft_targets(encoded, self._machine, place)
            self._splits[name, num_rows] = TaskSplit(rows=rows, encoded=encoded, soft_targets=soft)
        return self._splits[name, num_rows]

    def num_cut(self, name: SplitName, num_rows: int | None = None) -> int:
        """Return the number of truncated rows in a split, or in its first `num_rows` rows."""
        return self.kind.num_cut(self.split(name, num_rows).encoded)


class Bench:
    """Data and machine of a sweep in one process, whose number on this machine, `worker`, selects its device."""

    def __init__(self, plan: PlannedSweep, *, worker: int = 0) -> None:
        self.plan = plan
        self.job = plan.job
        self.runtime = _runtime_of_a_worker(plan.job.runtime)
        self.machine = resolve_machine(self.runtime, plan.job.sweep.precision)
        if self.machine.device.type == "cuda":
            device = torch.device("cuda", worker % torch.cuda.device_count())
            torch.cuda.set_device(device)
            self.machine = replace(self.machine, device=device)
        self._arms: dict[Arm, ArmBench] = {}

    def arm(self, arm: Arm) -> ArmBench:
        """Return the data of an arm, loaded on first use."""
        if arm not in self._arms:
            teacher = self.job.task.teacher if arm == "encoder" else None
            self._arms[arm] = ArmBench(self.job, self.plan.starts[arm], self.machine, teacher)
        return self._arms[arm]

    def run(
        self, arm: Arm, params: Params, *, num_train_rows: int | None, seed: int, checks: tuple[float, ...] = ()
    ) -> FineTuningJob:
        """Return the fine-tuning job for a point of the search space."""
        bench = self.arm(arm)
        config = with_params(self.plan.fine_tuning, params)
        if arm == "random_weights" and "layer_decay" not in params:
            # Lower rates in lower layers preserve what pretraining learned; random weights have nothing to preserve.
            config = replace(config, layer_decay=1.0)
        return FineTuningJob(
            kind=bench.kind,
            config=config,
            encoder=bench.start.weights,
            encoder_folder=bench.start.folder,
            train=bench.split("train", num_train_rows),
            dev=bench.split("dev"),
            unlabelled=bench.split(UNLABELLED) if bench.teacher and self.job.task.unlabelled else None,
            seed=seed,
            machine=self.machine,
            runtime=self.runtime,
            checks=checks,
        )


def kind_of(job: SweepJob, start: EncoderStart) -> TaskKind[Any, Any, Any]:
    """Return the task kind for an encoder, with lengths limited to the encoder's number of positions.

    Raises:
        ConfigError: The rest of the task's configuration is not valid with that length.
    """
    labels = read_task_manifest(job.task_folder)["labels"]
    positions = read_config(start.folder)[0].max_position_embeddings
    lengths = {name: min(getattr(job.task, name), positions) for name in LENGTHS if hasattr(job.task, name)}
    try:
        return kind_part(job.task.kind, "model").task_kind(replace(job.task, **lengths), labels)
    except ValueError as error:
        raise ConfigError(
            f"{start.folder} has positions for {positions} tokens, and with that many tasks.{job.task_name} cannot be "
            f"read: {error}."
        ) from error


def test_splits(job: SweepJob) -> list[SplitName]:
    """Return `test`, then the task's extra test splits sorted by name."""
    counts = read_task_manifest(job.task_folder)["counts"]
    return ["test", *sorted(name for name in counts if name.startswith("test_"))]


def split_sizes(job: SweepJob) -> dict[str, int]:
    """Return the number of rows of each split; for train, of the rows that the sweep trains on."""
    counts: dict[str, int] = read_task_manifest(job.task_folder)["counts"]
    return {**counts, "train": min(job.task.num_train_rows or counts["train"], counts["train"])}


_WORKERS_ON_A_CPU = 2


def num_sweep_workers(runtime: RuntimeConfig) -> int:
    """Return the number of processes that share a sweep: `runtime.sweep_workers`, else what suits the devices.

    That is one for each visible CUDA device, so that each has its own, and 2 on a CPU, whatever its cores: each worker
    loads the rows and an encoder, and not all memory grows with the cores.
    """
    if runtime.sweep_workers is not None:
        return runtime.sweep_workers
    # The devices that pretraining is to use need not all be there: each worker uses one.
    device = resolve_device(replace(runtime, num_devices=1, num_nodes=1), Ranks()).type
    if device == "cuda":
        return torch.cuda.device_count()
    return _WORKERS_ON_A_CPU if device == "cpu" else 1


def _runtime_of_a_worker(runtime: RuntimeConfig) -> RuntimeConfig:
    """Return the runtime of one worker: one device, one thread unless configured otherwise, no compilation.

    Batches have many shapes and runs are short, so compilation does not pay. Fine-tuning does not pack rows, so
    `varlen` attention is replaced with `auto`.

    The number of threads affects how sums are rounded, so its default depends neither on the machine's cores nor on
    the number of workers. To use more cores, run more workers.
    """
    attention = runtime.attention
    if attention == "varlen":
        warn("runtime.attention=varlen is for the packed rows of pretraining; fine-tuning takes what auto takes.")
        attention = "auto"
    threads = runtime.num_threads or 1
    return replace(runtime, num_devices=1, num_nodes=1, num_threads=threads, compile="off", attention=attention)
