"""What a process of a sweep holds ready: the machine it works on, and each arm's data as its own tokenizer reads it."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import torch

from bertline.finetuning.finetune import FineTuningJob, TaskSplit
from bertline.finetuning.kinds.base import TaskKind
from bertline.finetuning.kinds.choose import task_kind
from bertline.foundation.errors import ConfigError
from bertline.foundation.progress import warn
from bertline.modeling.huggingface import read_config
from bertline.sweep.job import Arm, EncoderStart, PlannedSweep, SweepJob
from bertline.sweep.space import Params, with_params
from bertline.sweep.store import StudyStore
from bertline.tasks.config import TaskConfig
from bertline.tasks.storage import SplitName, read_task_manifest
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.config import RuntimeConfig
from bertline.training.devices import Machine, resolve_machine

LENGTHS = ("max_length", "query_max_length")
"""Fields of a task that count tokens of a sequence."""


class ArmBench:
    """One arm's task: rows, and the same encoded, each split once."""

    def __init__(self, job: SweepJob, start: EncoderStart) -> None:
        self.start = start
        self.kind: TaskKind[Any, Any, Any] = kind_of(job, start)
        self._job = job
        self._tokenizer = Tokenizer.load(start.folder)
        self._splits: dict[tuple[SplitName, int | None], TaskSplit] = {}

    def split(self, name: SplitName, num_rows: int | None = None) -> TaskSplit:
        """A split, or its first rows."""
        if (name, num_rows) not in self._splits:
            rows = self.kind.read(self._job.task_folder, name).first(num_rows)
            self._splits[name, num_rows] = TaskSplit(rows=rows, encoded=self.kind.encode(rows, self._tokenizer))
        return self._splits[name, num_rows]

    def num_cut(self, name: SplitName, num_rows: int | None = None) -> int:
        """How many rows of a split, or of its first rows, lost tokens."""
        return self.kind.num_cut(self.split(name, num_rows).encoded)


class Bench:
    """The data of a sweep and the machine.

    Args:
        plan: Of the sweep.
        worker: The number of this process: of several devices it takes its own.
    """

    def __init__(self, plan: PlannedSweep, *, worker: int = 0) -> None:
        self.plan = plan
        self.job = plan.job
        self.worker = worker
        self.runtime = _runtime_of_a_worker(plan.job.runtime)
        self.machine = _machine_of_a_worker(self.runtime, plan.job.sweep.precision, worker)
        self._arms: dict[Arm, ArmBench] = {}
        self._store: StudyStore | None = None

    @property
    def store(self) -> StudyStore:
        """The studies, opened when they are first asked for."""
        if self._store is None:
            self._store = StudyStore(self.job.studies_url)
        return self._store

    def arm(self, arm: Arm) -> ArmBench:
        """An arm, read when it is first asked for."""
        if arm not in self._arms:
            self._arms[arm] = ArmBench(self.job, self.plan.starts[arm])
        return self._arms[arm]

    def run(
        self, arm: Arm, params: Params, *, num_train_rows: int | None, seed: int, checks: tuple[float, ...] = ()
    ) -> FineTuningJob:
        """The fine-tuning run that a point of the space means."""
        bench = self.arm(arm)
        config = with_params(self.plan.fine_tuning, params)
        if arm == "random_weights" and "layer_decay" not in params:
            # Lower rates for lower layers keep what pretraining learned; random weights would only be held back.
            config = replace(config, layer_decay=1.0)
        return FineTuningJob(
            kind=bench.kind,
            config=config,
            encoder=bench.start.weights,
            encoder_folder=bench.start.folder,
            train=bench.split("train", num_train_rows),
            dev=bench.split("dev"),
            seed=seed,
            machine=self.machine,
            runtime=self.runtime,
            checks=checks,
        )


def kind_of(job: SweepJob, start: EncoderStart) -> TaskKind[Any, Any, Any]:
    """The task as an encoder can read it: no sequence has more tokens than the encoder has positions.

    Raises:
        ConfigError: The rest of the task's configuration does not go with so few.
    """
    labels = read_task_manifest(job.task_folder)["labels"]
    positions = read_config(start.folder)[0].max_position_embeddings
    try:
        return task_kind(_within_positions(job.task, positions), labels)
    except ValueError as error:
        raise ConfigError(
            f"{start.folder} has positions for {positions} tokens, and with that many tasks.{job.task_name} cannot be "
            f"read: {error}."
        ) from error


def test_splits(job: SweepJob) -> list[SplitName]:
    """`test`, then the task's extra tests by name."""
    counts = read_task_manifest(job.task_folder)["counts"]
    return ["test", *sorted(name for name in counts if name.startswith("test_"))]


def split_sizes(job: SweepJob) -> dict[str, int]:
    """Rows of each split; of train, those that the sweep trains on."""
    counts: dict[str, int] = read_task_manifest(job.task_folder)["counts"]
    return {**counts, "train": min(job.task.num_train_rows or counts["train"], counts["train"])}


def _within_positions(task: TaskConfig, positions: int) -> TaskConfig:
    names = [field.name for field in fields(task) if field.name in LENGTHS]
    return replace(task, **{name: min(getattr(task, name), positions) for name in names})


def _machine_of_a_worker(runtime: RuntimeConfig, precision: Any, worker: int) -> Machine:
    machine = resolve_machine(runtime, precision)
    if machine.device.type != "cuda":
        return machine
    device = torch.device("cuda", worker % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return replace(machine, device=device)


def _runtime_of_a_worker(runtime: RuntimeConfig) -> RuntimeConfig:
    """One device, one thread where nothing else is said, and no compiler: batches have many shapes, runs are short.

    Rows are not packed, so `varlen` attention is none.

    How many threads there are decides how sums are rounded, and so it may depend neither on the machine's cores nor on
    the number of workers. More cores are used by more workers.
    """
    attention = runtime.attention
    if attention == "varlen":
        warn("runtime.attention=varlen is for the packed rows of pretraining; fine-tuning takes what auto takes.")
        attention = "auto"
    return replace(
        runtime,
        num_devices=1,
        num_nodes=1,
        num_threads=runtime.num_threads or 1,
        compile="off",
        attention=attention,
    )
