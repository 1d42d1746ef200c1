"""What a sweep is asked to do, and what its processes hold ready."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from bertline.finetuning.encoding import EncodedRows, encode_rows
from bertline.finetuning.finetune import EncoderWeights, FineTuningJob
from bertline.sweep.config import SweepConfig
from bertline.sweep.space import Params, with_params
from bertline.tasks.config import ClassificationTaskConfig
from bertline.tasks.storage import SplitName, read_rows, read_task_manifest
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.config import RuntimeConfig
from bertline.training.devices import Machine, resolve_machine

Arm = Literal["encoder", "random_weights"]
WEIGHTS: dict[Arm, EncoderWeights] = {"encoder": "pretrained", "random_weights": "random"}


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepJob:
    """One task's sweep."""

    task_name: str
    task: ClassificationTaskConfig
    sweep: SweepConfig
    runtime: RuntimeConfig
    task_folder: Path
    pretrain_folder: Path
    """A Hugging Face folder: the encoder and its tokenizer."""
    run_folder: Path
    """Work in progress: the study, outcomes, events; at the end `result/`."""

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The encoders that are tried: the pretrained one, and the same from random weights."""
        return ("encoder", "random_weights") if self.sweep.random_weights_baseline else ("encoder",)


class Bench:
    """The data of a sweep, read and encoded once a process, and the machine it works on."""

    def __init__(self, job: SweepJob) -> None:
        self.job = job
        self.labels: list[str] = read_task_manifest(job.task_folder)["labels"]
        self.runtime = _runtime_of_a_worker(job.runtime)
        self.machine: Machine = resolve_machine(self.runtime, job.sweep.precision)
        self._tokenizer = Tokenizer.load(job.pretrain_folder)
        self.train, self.dev = self.encoded("train"), self.encoded("dev")

    def encoded(self, split: SplitName) -> EncodedRows:
        """The rows of a split as token ids."""
        rows = read_rows(self.job.task_folder, split)
        return encode_rows(rows, self._tokenizer, max_length=self.job.task.max_length)

    def run(self, arm: Arm, params: Params, *, num_train_rows: int | None, seed: int) -> FineTuningJob:
        """The fine-tuning run that a point of the space means."""
        return FineTuningJob(
            config=with_params(self.job.sweep.fine_tuning, params),
            encoder=WEIGHTS[arm],
            pretrain_folder=self.job.pretrain_folder,
            train=self.train.first(num_train_rows),
            dev=self.dev,
            num_labels=len(self.labels),
            metric=self.job.task.metric,
            seed=seed,
            machine=self.machine,
            runtime=self.runtime,
        )


def _runtime_of_a_worker(runtime: RuntimeConfig) -> RuntimeConfig:
    """One device, its share of the cores, and no compiler: batches have many shapes and runs are short."""
    cores = os.cpu_count() or 1
    num_threads = runtime.num_threads
    if num_threads is None and runtime.sweep_workers > 1:
        num_threads = max(1, cores // runtime.sweep_workers)
    return replace(runtime, num_devices=1, num_nodes=1, num_threads=num_threads, compile="off")
