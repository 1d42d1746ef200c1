"""Definition of a pretraining run, and its identity, which every checkpoint holds and a resumed run must have."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertline.foundation.errors import ConfigError
from bertline.foundation.files import sha256_of_file
from bertline.foundation.manifests import MANIFEST_NAME
from bertline.foundation.work import Work
from bertline.modeling.config import ModelConfig
from bertline.pretraining.config import PretrainConfig
from bertline.pretraining.objectives.registry import ObjectiveConfig
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import resolve_folder
from bertline.training.config import RuntimeConfig, ScheduleConfig
from bertline.training.devices import Precision
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
    def records(self) -> tuple[Path, ...]:
        """Files that the run appends to while it trains; the result has copies of them."""
        return (self.metrics_path, self.mask_predictions_path, self.health_path)

    @property
    def written_atomically(self) -> tuple[Path, ...]:
        """Files and folders of which a kill may leave half-written copies, under temporary names in the same folder."""
        folders = (self.latest_folder, self.best_folder, self.profile_folder, self.result_folder)
        return (*self.records, self.mask_predictions_path.with_suffix(".txt"), *folders)


# Keys that do not affect the weights of the last step, which are the result. Probes run without dropout and gradients
# and do not use training's random generators; checkpoints are copies. Two things do depend on these keys: which step
# counts as the best (losses over different sequences are not comparable: see `TrainingState.restore`), and, if training
# fails, when it rolls back (health) and how far (checkpoints). The new values apply from the resumed step on, so a
# diverged run can be resumed with more rollbacks allowed; health.jsonl and the checkpoint record the examples that it
# skipped.
FREE_KEYS = (
    "pretrain.validate_every_steps",
    "pretrain.validation_sequences",
    "pretrain.checkpoint_every_steps",
    "pretrain.keep_checkpoints",
    "pretrain.mask_predictions",
    "pretrain.linear_probe",
    "pretrain.health",
)
# Keys that may change when a run extends another.
_EXTENDABLE = ("pretrain.phases", "pretrain.max_steps", "pretrain.extends")


def identity_of(job: PretrainJob, precision: Precision) -> dict[str, Any]:
    """Return everything that the weights depend on as plain data: configuration, inputs and resolved precision."""
    tokens = "\n".join(Tokenizer.load(job.tokenizer_folder).vocab)
    sections = ("model", "objective", "optimizer", "schedule", "pretrain")
    configured = {name: dataclasses.asdict(getattr(job, name)) for name in sections}
    if job.model.family == "bert":  # runs of before there were others can be extended
        configured["model"] = {k: v for k, v in configured["model"].items() if k not in ("family", "own")}
    identity = {
        **configured,
        "examples": {"manifest": sha256_of_file(job.examples_folder / MANIFEST_NAME)},
        "tokenizer": {"tokens": hashlib.sha256(tokens.encode()).hexdigest()},
        "resolved": {"precision": precision},
    }
    return json.loads(json.dumps(identity))


def require_same(found: Mapping[str, Any], expected: Mapping[str, Any], *, where: str, extending: bool) -> None:
    """Refuse to resume from a checkpoint of a different training; keys that do not affect the weights may differ.

    Args:
        where: Run that the checkpoint belongs to, for the error message.
        extending: Whether the job extends the run, so that phases and number of steps may differ.

    Raises:
        ConfigError: Other keys differ; the message lists each of them with both values.
    """
    allowed = (*FREE_KEYS, *_EXTENDABLE) if extending else FREE_KEYS
    differences = [line for key, line in _differences(found, expected) if not _is_within(key, allowed)]
    if differences:
        rule = (
            "A run can be extended by more steps only, all else must be as it was"
            if extending
            else "A run is resumed only as it was started; give another run folder to start from scratch"
        )
        raise ConfigError(
            f"{where} was trained with another configuration:\n"
            + "\n".join(f"  - {line}" for line in differences)
            + f"\n{rule}."
        )


def changes_no_weights(key: str) -> bool:
    """Return whether a run can be resumed with a different value of this dotted key.

    Example:
        >>> changes_no_weights("pretrain.health.max_rewinds"), changes_no_weights("pretrain.seed")
        (True, False)
    """
    return _is_within(key, FREE_KEYS)


def _is_within(key: str, parents: tuple[str, ...]) -> bool:
    return any(key == parent or key.startswith(f"{parent}.") for parent in parents)


def _differences(found: Any, expected: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(found, Mapping) and isinstance(expected, Mapping):
        for name in sorted({*found, *expected}):
            yield from _differences(found.get(name), expected.get(name), f"{key}.{name}" if key else name)
    elif found != expected:
        yield key, f"{key} was {found!r}, is now {expected!r}"
