"""Definition of a pretraining run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bertline.foundation.work import Work
from bertline.modeling.config import ModelConfig
from bertline.pretraining.config import PretrainConfig
from bertline.pretraining.objectives.registry import ObjectiveConfig
from bertline.tokenization.resolve import resolve_folder
from bertline.training.config import RuntimeConfig, ScheduleConfig
from bertline.training.optimizers.registry import OptimizerConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class PretrainJob:
    """One pretraining run: its configuration, inputs and working folder."""

    model: ModelConfig
    objective: ObjectiveConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    pretrain: PretrainConfig
    runtime: RuntimeConfig
    examples_folder: Path
    tokenizer_folder: Path
    run_folder: Path
    """Folder of the checkpoints, the metrics and, at the end, the result."""
    start_from_folder: Path | None = None
    """Folder of a BERT checkpoint with the same vocabulary; None for random weights."""
    extend_from: Path | None = None
    """Run folder of a finished run to extend; None to extend no run."""

    @classmethod
    def of(cls, work: Work) -> PretrainJob:
        """Return the job of a run folder, whose inputs are `examples` and `tokenizer`.

        Raises:
            DataError: `pretrain.start_from` is neither a folder nor a name known to the hub.
        """
        config, pretrain = work.config, work.config.pretrain
        start, extends = pretrain.start_from, pretrain.extends
        return cls(
            model=config.model,
            objective=config.objective,
            optimizer=config.optimizer,
            schedule=config.schedule,
            pretrain=pretrain,
            runtime=config.runtime,
            examples_folder=work.inputs["examples"],
            tokenizer_folder=work.inputs["tokenizer"],
            run_folder=work.folder,
            start_from_folder=resolve_folder(start, pretrain.start_from_revision) if start else None,
            extend_from=work.folder.parent / extends if extends else None,
        )

    @property
    def checkpoints_folder(self) -> Path:
        """Folder of this run's checkpoints."""
        return self.run_folder / "checkpoints"

    @property
    def metrics_path(self) -> Path:
        """Path of the file with all metrics."""
        return self.run_folder / "metrics.jsonl"

    @property
    def mask_predictions_path(self) -> Path:
        """Path of the mask predictions: the guesses for the fixed blanks."""
        return self.run_folder / "mask_predictions.jsonl"

    @property
    def mask_predictions_text_path(self) -> Path:
        """Path of the mask predictions as readable text."""
        return self.mask_predictions_path.with_suffix(".txt")

    @property
    def health_path(self) -> Path:
        """Path of the file with the alarms and the rollbacks to a checkpoint."""
        return self.run_folder / "health.jsonl"

    @property
    def latest_folder(self) -> Path:
        """Model folder of the newest weights, to inspect a run in progress."""
        return self.run_folder / "latest"

    @property
    def best_folder(self) -> Path:
        """Model folder of the step with the lowest held-out loss, if that is not the last step of a finished run."""
        return self.run_folder / "best"

    @property
    def profile_folder(self) -> Path:
        """Folder of the trace of a few steps and their costliest operations, if profiling was requested."""
        return self.run_folder / "profile"

    @property
    def result_folder(self) -> Path:
        """Folder of the result of a finished run."""
        return self.run_folder / "result"

    @property
    def written_atomically(self) -> tuple[Path, ...]:
        """Files and folders of which a kill may leave half-written copies, under temporary names in the same folder."""
        folders = (self.latest_folder, self.best_folder, self.profile_folder, self.result_folder)
        files = (self.metrics_path, self.mask_predictions_path, self.mask_predictions_text_path, self.health_path)
        return (*files, *folders)
