"""What a sweep is asked to do, and the encoders that it tries: its arms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bertline.finetuning.config import FineTuningConfig
from bertline.finetuning.finetune import EncoderWeights
from bertline.foundation.validation import to_mapping, validate
from bertline.modeling.huggingface import read_config
from bertline.sweep.config import SweepConfig
from bertline.tasks.config import TaskConfig
from bertline.tokenization.resolve import resolve_folder
from bertline.training.config import RuntimeConfig

Arm = Literal["encoder", "combined", "random_weights", "reference_encoder"]
"""`combined` is made of the encoder's finished runs, and so has no trials."""
# BERT-small (arXiv 1908.08962, table 1): 4 layers of 512.
_SMALL_LAYERS, _SMALL_WIDTH = 4, 512


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepJob:
    """One task's sweep."""

    task_name: str
    task: TaskConfig
    sweep: SweepConfig
    runtime: RuntimeConfig
    task_folder: Path
    pretrain_folder: Path
    """The line's own encoder and its tokenizer, as a Hugging Face folder."""
    run_folder: Path
    """Work in progress: outcomes, events; at the end `result/`. Its name is part of the names of the studies."""
    studies_url: str
    """Where the studies of all tasks are (see `TrackingConfig.studies_url`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderStart:
    """Where the trials of an arm start from."""

    title: str
    """For people."""
    start: str
    """`line`, `random`, or the folder or hub name that was given."""
    folder: Path
    """Architecture and tokenizer, and unless the weights are random the weights."""
    weights: EncoderWeights


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedSweep:
    """A job with everything that is decided before the first trial. The same in every process."""

    job: SweepJob
    starts: Mapping[Arm, EncoderStart]
    """The arms, in the order in which they run."""
    fine_tuning: FineTuningConfig
    """The sweep's, with the task's own values."""

    def start_of(self, arm: Arm) -> EncoderStart:
        """Where an arm starts from; what is combined with the encoder, where that does."""
        return self.starts["encoder" if arm == "combined" else arm]

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The encoders that are tried."""
        return tuple(self.starts)


def planned(job: SweepJob) -> PlannedSweep:
    """Find the encoders of all arms and the values that no trial varies.

    Raises:
        ConfigError: A value in the task's `fine_tuning` is not one of its field.
        DataError: A named checkpoint is no folder, and no name that the hub knows.
        ArtifactError: A folder is no BERT encoder.
    """
    where = f"tasks.{job.task_name}.fine_tuning"
    values = {**to_mapping(job.sweep.fine_tuning), **job.task.fine_tuning}
    return PlannedSweep(job=job, starts=_starts(job), fine_tuning=validate(FineTuningConfig, values, where=where))


def _starts(job: SweepJob) -> dict[Arm, EncoderStart]:
    encoder = _encoder_start(job)
    starts: dict[Arm, EncoderStart] = {"encoder": encoder}
    if encoder.weights == "pretrained" and _random_weights_wanted(job.sweep, encoder):
        starts["random_weights"] = EncoderStart(
            title="the same from random weights", start="random", folder=encoder.folder, weights="random"
        )
    reference = job.sweep.reference_encoder
    if reference is not None:
        starts["reference_encoder"] = EncoderStart(
            title=reference, start=reference, folder=resolved_encoder(reference), weights="pretrained"
        )
        read_config(starts["reference_encoder"].folder)
    return starts


def _encoder_start(job: SweepJob) -> EncoderStart:
    match job.task.start_from:
        case None:
            title = "pretrained encoder"
            return EncoderStart(title=title, start="line", folder=job.pretrain_folder, weights="pretrained")
        case "random":
            title = "encoder from random weights"
            return EncoderStart(title=title, start="random", folder=job.pretrain_folder, weights="random")
        case name:
            return EncoderStart(title=name, start=name, folder=resolved_encoder(name), weights="pretrained")


def resolved_encoder(name: str) -> Path:
    """The folder of an encoder: a folder, or a hub name with an optional `@REVISION`."""
    if Path(name).expanduser().exists():
        return resolve_folder(name, None)
    hub_name, _, revision = name.partition("@")
    return resolve_folder(hub_name, revision or None)


def _random_weights_wanted(sweep: SweepConfig, encoder: EncoderStart) -> bool:
    match sweep.random_weights_baseline:
        case "always":
            return True
        case "never":
            return False
        case "up_to_small":
            config = read_config(encoder.folder)[0]
            small = config.num_hidden_layers <= _SMALL_LAYERS and config.hidden_size <= _SMALL_WIDTH
            return small and encoder.start == "line"
