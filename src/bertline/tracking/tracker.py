"""Interface of tracking. Importing this module is cheap; MLflow is imported only if tracking is enabled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NotRequired, Self, TypedDict, Unpack

import pyarrow as pa

from bertline.foundation.errors import WorkContinues
from bertline.foundation.progress import warn
from bertline.tracking.champions import Standing
from bertline.tracking.config import TrackingConfig, masked

Status = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Serving:
    """How MLflow loads a folder, and the table that goes in and out."""

    loader_module: str
    """Module with MLflow's function `_load_pyfunc(path, model_config)`; nothing is pickled."""
    inputs: Mapping[str, str]
    """What each column holds: `text`, `texts` (a list) or `text or texts`. All are required."""
    outputs: pa.Schema
    params: Mapping[str, int]
    """Parameters of a request with their defaults."""
    settings: Mapping[str, Any]
    """Settings of the loader with their defaults."""
    example: Mapping[str, Any]
    """A row of inputs, made up: it goes to every tracking server, so it must not be a user's."""
    packages: tuple[str, ...]
    """Packages that the loader needs; their installed versions are pinned."""
    dataset: tuple[str, str] | None = None
    """Name of the task and path of its rows, on which the scores were measured; None without scores."""


class PipelineOpening(TypedDict):
    """What the run of the pipeline is opened with."""

    pipeline_key: str
    """Identifies the run, by the tag `bertline.pipeline_key`."""
    tags: Mapping[str, str]
    params: Mapping[str, Any]
    name: NotRequired[str]
    """With the key, the name of a new run until the figures of the pipeline give it a better one."""


class StageOpening(TypedDict):
    """What the run of a stage is opened with."""

    key: str
    params: Mapping[str, Any]
    tags: Mapping[str, str]
    inputs: Mapping[str, tuple[Path, str]]
    """Path and digest of each input by name; the digest is DVC's hash."""


class Registration(TypedDict):
    """How a folder is registered as a version of a model."""

    alias: str
    """Alias that always moves to this version."""
    tags: Mapping[str, str]
    """Tags of a new version."""
    serving: Serving
    """How MLflow loads the folder."""
    standing: NotRequired[Standing | None]
    """Scores of the version. The alias of the standing moves to this version if no version has it or this version beats
    the one that has it."""


class Run:
    """A run of MLflow, which ends with the block that it is used in."""

    run_id: str | None = None
    """MLflow's run id; None if nothing is recorded (yet)."""

    def log_metrics(self, metrics: Mapping[str, float]) -> None:
        """Log headline figures; names of followed curves get the prefix `final/`."""

    def log_artifact(self, path: Path, *, contains_text: bool) -> None:
        """Attach a file or folder; with `contains_text`, it is sent to a remote server only if `log_text` is true."""

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Set tags, such as the content hashes of outputs."""

    def close(self, status: Status = "FINISHED") -> None:
        """Send all queued records and end the run, unless its status is RUNNING."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(status_after(error))


class TrackedRun(Run):
    """Run of a stage. This base class records nothing; it is used if tracking is disabled."""

    def follow(self, path: Path) -> None:
        """Send the metrics of a growing `metrics.jsonl` by step, each (key, step) once, until the stage ends.

        For a finished run only missing values are sent, so this can also upload a run that was made offline.
        """

    def follow_events(self, path: Path) -> None:
        """Create a nested run, once, for each trial and repetition in a growing `events.jsonl`."""

    def follow_load(self, path: Path) -> None:
        """Send the load that each node samples to this run folder, each sample once, if `system_metrics` is true."""

    def follow_artifact(self, path: Path, *, contains_text: bool) -> None:
        """Attach a file, and attach it again whenever it is rewritten, until the stage ends.

        A file with `contains_text` is sent to a remote server only if `log_text` is true.
        """

    def log_table(
        self, path: Path, name: str, *, num_rows: int = 1000, wrong_only: bool = False, contains_text: bool
    ) -> None:
        """Attach rows of a Parquet file as a table that MLflow shows.

        Args:
            path: The file.
            name: Name of the table.
            num_rows: Most rows, the first ones.
            wrong_only: Whether to take only rows whose column `correct` is below 1.
            contains_text: See `log_artifact`.
        """


class Tracker(Run):
    """Run of the pipeline and runs of its stages. This base class records nothing, for disabled tracking."""

    def stage(self, name: str, **opening: Unpack[StageOpening]) -> TrackedRun:
        """Open the run of a stage, nested in the pipeline's; an unfinished run with the same name and key is continued.

        The run ends as FINISHED, as FAILED after an error, or as KILLED after Ctrl-C or an early exit. After
        `WorkContinues` it does not end.
        """
        return TrackedRun()

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Attach the whole configuration to the pipeline's run, as `config.yaml`."""

    def register(self, name: str, folder: Path, **asked: Unpack[Registration]) -> str | None:
        """Register `folder` as a version of the model `name`, and return the version; None if nothing is recorded.

        The card of the folder is the description. Content that is already registered gets the alias, not a second
        version.
        """
        return None


def open_tracker(config: TrackingConfig, **opening: Unpack[PipelineOpening]) -> Tracker:
    """Find or create the pipeline's run; use it as a context manager, or `close` it.

    Tracking errors do not stop the pipeline: an unreachable server is a warning, and the records are kept in the files
    under `runs/`.
    """
    if not config.enabled:
        return Tracker()
    try:
        from bertline.tracking.mlflow_tracker import MlflowTracker

        return MlflowTracker(config, **opening)
    except Exception as error:
        warn(f"tracking is off: {masked(config.uri)} cannot be opened ({masked(str(error))}). The work continues.")
        return Tracker()


def status_after(error: BaseException | None) -> Status:
    """Return MLflow's status for a block that ended with this error; None for no error."""
    if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return "FINISHED"
    if isinstance(error, WorkContinues):
        return "RUNNING"
    return "FAILED" if isinstance(error, Exception) else "KILLED"
