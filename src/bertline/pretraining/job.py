"""What a pretraining is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bertline.modeling.config import ModelConfig
from bertline.pretraining.config import ObjectiveConfig, PretrainConfig
from bertline.training.config import OptimizerConfig, RuntimeConfig, ScheduleConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class PretrainJob:
    """One pretraining: its configuration, its inputs and the folder it works in."""

    model: ModelConfig
    objective: ObjectiveConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    pretrain: PretrainConfig
    runtime: RuntimeConfig
    examples_folder: Path
    tokenizer_folder: Path
    run_folder: Path
    """Checkpoints, metrics and, at the end, the result."""
    start_from_folder: Path | None = None
    """A BERT checkpoint with the same vocabulary; None for random weights."""
    extend_from: Path | None = None
    """The run folder of a finished run to go on from."""

    @property
    def checkpoints_folder(self) -> Path:
        """The checkpoints of this run."""
        return self.run_folder / "checkpoints"

    @property
    def metrics_path(self) -> Path:
        """The record of all metrics."""
        return self.run_folder / "metrics.jsonl"

    @property
    def film_strip_path(self) -> Path:
        """The guesses at the fixed blanks."""
        return self.run_folder / "film_strip.jsonl"

    @property
    def film_strip_text_path(self) -> Path:
        """The same for people."""
        return self.film_strip_path.with_suffix(".txt")

    @property
    def health_path(self) -> Path:
        """The alarms, and how often training went back to a checkpoint."""
        return self.run_folder / "health.jsonl"

    @property
    def latest_folder(self) -> Path:
        """A model folder of the newest weights, to look into a run in progress."""
        return self.run_folder / "latest"

    @property
    def best_folder(self) -> Path:
        """A model folder of the step with the lowest held-out loss, where a finished run's last step has another."""
        return self.run_folder / "best"

    @property
    def profile_folder(self) -> Path:
        """The trace of a few steps and their costliest operations, where that was asked for."""
        return self.run_folder / "profile"

    @property
    def result_folder(self) -> Path:
        """What the run gives when it is finished."""
        return self.run_folder / "result"

    @property
    def written_atomically(self) -> tuple[Path, ...]:
        """What a kill may leave half written, under a temporary name beside it."""
        folders = (self.latest_folder, self.best_folder, self.profile_folder, self.result_folder)
        files = (self.metrics_path, self.film_strip_path, self.film_strip_text_path, self.health_path)
        return (*files, *folders)
