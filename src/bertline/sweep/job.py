"""Sweep jobs, and the encoders that a sweep compares: its arms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from bertline.finetuning.config import FineTuningConfig
from bertline.finetuning.finetune import EncoderWeights
from bertline.foundation.validation import to_mapping, validate
from bertline.foundation.work import Work
from bertline.kinds.registry import TaskConfig
from bertline.modeling.huggingface import read_config
from bertline.sweep.config import SweepConfig
from bertline.tokenization.vocabulary import resolve_folder
from bertline.training.config import RuntimeConfig

Arm = Literal["encoder", "combined", "without_teacher", "random_weights", "reference_encoder"]
"""`combined` is computed from the encoder's finished runs, so it has no trials."""
# BERT-small (arXiv 1908.08962, table 1): 4 layers of hidden size 512.
_SMALL_LAYERS, _SMALL_WIDTH = 4, 512


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepJob:
    """The sweep of one task."""

    task_name: str
    task: TaskConfig
    sweep: SweepConfig
    runtime: RuntimeConfig
    task_folder: Path
    pretrain_folder: Path
    """Folder of the pipeline's own encoder and tokenizer, in Hugging Face format."""
    run_folder: Path
    """Folder of work in progress: outcomes, events, at the end `result/`. Its name is part of the studies' names."""
    studies_url: str
    """URL of the database with the studies of all tasks (see `TrackingConfig.studies_url`)."""

    @classmethod
    def of(cls, work: Work) -> SweepJob:
        """Return the job of a run folder, whose inputs are `tasks` (this task's rows) and, if the task starts from the
        pipeline's encoder, `pretrain`."""
        config, name = work.config, str(work.task_name)
        return cls(
            task_name=name,
            task=config.tasks[name],
            sweep=config.sweep,
            runtime=config.runtime,
            task_folder=work.inputs["tasks"],
            pretrain_folder=work.inputs.get("pretrain", work.folder / "none"),
            run_folder=work.folder,
            studies_url=config.tracking.studies_url,
        )


@dataclass(frozen=True, slots=True)
class EncoderStart:
    """Encoder that the trials of an arm start from."""

    title: str
    start: str
    """`pipeline` (its own encoder), `random`, or the configured folder or hub name."""
    folder: Path
    """Folder with the architecture, the tokenizer and, unless they are random, the weights."""
    weights: EncoderWeights


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedSweep:
    """A sweep job with everything that is decided before the first trial; identical in every process."""

    job: SweepJob
    starts: Mapping[Arm, EncoderStart]
    """Starting encoder of each arm, in the order in which the arms run."""
    fine_tuning: FineTuningConfig
    """Fine-tuning values of the sweep, overridden by the task's own."""

    def start_of(self, arm: Arm) -> EncoderStart:
        """Return the encoder that an arm starts from; for `combined`, that of the arm `encoder`."""
        return self.starts["encoder" if arm == "combined" else arm]

    @property
    def arms(self) -> tuple[Arm, ...]:
        """Arms that have runs of their own: all but `combined`."""
        return tuple(self.starts)


def planned(job: SweepJob) -> PlannedSweep:
    """Resolve the encoders of all arms and the hyperparameters that no trial varies.

    Raises:
        ConfigError: A value in the task's `fine_tuning` is not valid for its field.
        DataError: A checkpoint is neither a folder nor a name known to the hub.
        ArtifactError: A folder does not hold a BERT encoder.
    """
    where = f"tasks.{job.task_name}.fine_tuning"
    values = {**to_mapping(job.sweep.fine_tuning), **job.task.fine_tuning}
    return PlannedSweep(job=job, starts=_starts(job), fine_tuning=validate(FineTuningConfig, values, where=where))


def _starts(job: SweepJob) -> dict[Arm, EncoderStart]:
    match job.task.start_from:
        case None:
            encoder = EncoderStart("pretrained encoder", "pipeline", job.pretrain_folder, "pretrained")
        case "random":
            encoder = EncoderStart("encoder from random weights", "random", job.pretrain_folder, "random")
        case name:
            encoder = EncoderStart(name, name, resolved_encoder(name), "pretrained")
    starts: dict[Arm, EncoderStart] = {"encoder": encoder}
    if job.task.teacher is not None:
        starts["without_teacher"] = replace(encoder, title="the same without the teacher")
    if encoder.weights == "pretrained" and _random_weights_wanted(job.sweep, encoder):
        starts["random_weights"] = EncoderStart("the same from random weights", "random", encoder.folder, "random")
    if (reference := job.sweep.reference_encoder) is not None:
        starts["reference_encoder"] = EncoderStart(reference, reference, resolved_encoder(reference), "pretrained")
        read_config(starts["reference_encoder"].folder)
    return starts


def resolved_encoder(name: str) -> Path:
    """Return the folder of an encoder that is named by a folder or by a hub name with an optional `@REVISION`."""
    if Path(name).expanduser().exists():
        return resolve_folder(name, None)
    hub_name, _, revision = name.partition("@")
    return resolve_folder(hub_name, revision or None)


def _random_weights_wanted(sweep: SweepConfig, encoder: EncoderStart) -> bool:
    if sweep.random_weights_baseline != "up_to_small":
        return sweep.random_weights_baseline == "always"
    config = read_config(encoder.folder)[0]
    small = config.num_hidden_layers <= _SMALL_LAYERS and config.hidden_size <= _SMALL_WIDTH
    return small and encoder.start == "pipeline"
