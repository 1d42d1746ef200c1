"""Sweep jobs, and the encoders that a sweep compares: its arms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from bertline.finetuning.config import FineTuningConfig
from bertline.finetuning.finetune import EncoderWeights
from bertline.foundation.errors import ConfigError
from bertline.foundation.files import sha256_of_file
from bertline.foundation.validation import to_mapping, validate
from bertline.foundation.work import Work
from bertline.kinds.registry import TaskConfig
from bertline.modeling.huggingface import read_config
from bertline.sweep.config import SweepConfig
from bertline.tokenization.vocabulary import resolve_folder
from bertline.training.config import RuntimeConfig

Arm = str
"""`encoder`; `random_weights`; `without_teacher`; `encoder_2`, `encoder_3` and so on, those of `sweep.encoders`; and
`combined`, which is computed from the encoder's finished runs, so it has no trials."""
T = TypeVar("T")
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
        ConfigError: A value in the task's `fine_tuning` is not valid for its field, or an encoder is named twice.
        DataError: A checkpoint is neither a folder nor a name known to the hub.
        ArtifactError: A folder does not hold an encoder.
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
            encoder = EncoderStart(name, name, resolve_folder(name), "pretrained")
    starts: dict[Arm, EncoderStart] = {"encoder": encoder}
    if job.task.teacher is not None:
        starts["without_teacher"] = replace(encoder, title="the same without the teacher")
    if (encoder.weights, job.sweep.exported) == ("pretrained", "own") and _random_weights_wanted(job.sweep, encoder):
        starts["random_weights"] = EncoderStart("the same from random weights", "random", encoder.folder, "random")
    for number, other in enumerate(job.sweep.encoders, start=2):
        starts[f"encoder_{number}"] = EncoderStart(other, other, resolve_folder(other), "pretrained")
        read_config(starts[f"encoder_{number}"].folder)
    if job.sweep.encoders:
        named = [(start.title, start.folder) for arm, start in starts.items() if arm.startswith("encoder")]
        refuse_same_encoders("sweep.encoders", named)
    return starts


def refuse_same_encoders(key: str, named: Iterable[tuple[str, Path]]) -> None:
    """Check that no encoder is named twice: under one name, by two paths to its folder, or as a copy of its weights.

    Each has a name, under `key` of the configuration, and a folder; one without weights, as of a hub name, has only the
    name to compare.

    Raises:
        ConfigError: Two are the same.
    """
    names: dict[Any, str] = {}
    for name, folder in named:
        identity = tuple(map(sha256_of_file, sorted(folder.glob("*.safetensors")))) or name
        if identity in names:
            raise ConfigError(
                f"{key}: {names[identity]} and {name} are the same encoder. Name each once; the one that the task "
                "starts from is always among those compared."
            )
        names[identity] = name


def led_by(arm: Arm, by_arm: Mapping[Arm, T]) -> dict[Arm, T]:
    """Return a mapping in which `arm` and `encoder` have changed names.

    >>> led_by("encoder_2", {"encoder": "own", "encoder_2": "best", "encoder_3": "last"})
    {'encoder': 'best', 'encoder_2': 'own', 'encoder_3': 'last'}
    """
    renamed = {{arm: "encoder", "encoder": arm}.get(name, name): value for name, value in by_arm.items()}
    return dict(sorted(renamed.items(), key=lambda item: item[0] != "encoder"))


def _random_weights_wanted(sweep: SweepConfig, encoder: EncoderStart) -> bool:
    if sweep.random_weights_baseline != "up_to_small":
        return sweep.random_weights_baseline == "always"
    config = read_config(encoder.folder)[0]
    small = config.num_hidden_layers <= _SMALL_LAYERS and config.hidden_size <= _SMALL_WIDTH
    return small and encoder.start == "pipeline"
