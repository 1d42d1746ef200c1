"""Interface of tracking. Importing this module is cheap; MLflow is imported only if tracking is enabled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from bertline.foundation.errors import WorkContinues
from bertline.foundation.progress import warn
from bertline.tracking.addresses import masked
from bertline.tracking.champions import Standing
from bertline.tracking.config import TrackingConfig
from bertline.tracking.serving import Serving


class TrackedRun:
    """Run of a stage. This base class records nothing; it is used if tracking is disabled."""

    run_id: str | None = None
    """MLflow's run id; None if nothing is recorded (yet)."""

    def follow(self, metrics_jsonl: Path) -> None:
        """Send the metrics of a growing file by step, each (key, step) once, until the stage ends.

        For a finished run only missing values are sent, so this can also upload a run that was made offline.
        """

    def follow_events(self, events_jsonl: Path) -> None:
        """Create a nested run, once, for each trial and repetition of the sweep when it ends."""

    def follow_artifact(self, path: Path, *, contains_text: bool) -> None:
        """Attach a file, and attach it again whenever it is rewritten, until the stage ends.

        A file with `contains_text` is sent to a remote server only if `log_text` is true.
        """

    def log_metrics(self, metrics: Mapping[str, float]) -> None:
        """Log the headline figures of a finished stage; names of followed curves get the prefix `final/`."""

    def log_artifact(self, path: Path, *, contains_text: bool) -> None:
        """Attach a file or folder; with `contains_text`, it is sent to a remote server only if `log_text` is true."""

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

    def log_datasets(self, inputs: Mapping[str, tuple[Path, str]]) -> None:
        """Log the inputs of the stage, (path, digest) by name; the digest is DVC's hash."""

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Set tags, such as the content hashes of outputs."""


class Tracker:
    """Run of the pipeline and runs of its stages. This base class records nothing, for disabled tracking."""

    run_id: str | None = None

    def stage(
        self,
        name: str,
        *,
        key: str,
        params: Mapping[str, Any],
        tags: Mapping[str, str],
        inputs: Mapping[str, tuple[Path, str]],
    ) -> AbstractContextManager[TrackedRun]:
        """Open the run of a stage, nested in the pipeline's; an unfinished run with the same name and key is continued.

        The run ends as FINISHED, as FAILED after an error, or as KILLED after Ctrl-C or an early exit. After
        `WorkContinues` it does not end.
        """
        return _nothing()

    def log_pipeline_metrics(self, metrics: Mapping[str, float]) -> None:
        """Log the headline figures of the whole pipeline."""

    def log_pipeline_artifact(self, path: Path, *, contains_text: bool) -> None:
        """Attach a file or folder to the pipeline's run."""

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Attach the whole configuration to the pipeline's run, as `config.yaml`."""

    def set_pipeline_tags(self, tags: Mapping[str, str]) -> None:
        """Set tags of the pipeline's run."""

    def register(
        self,
        name: str,
        folder: Path,
        *,
        alias: str,
        tags: Mapping[str, str],
        serving: Serving,
        standing: Standing | None = None,
    ) -> str | None:
        """Register `folder` as a version of the model `name` with this alias, and return the version.

        `serving` says how MLflow loads it. The card of the folder is the description.

        Content that is already registered gets the alias, not a second version. With a `standing`, its alias also moves
        to this version if no version has it or this version beats the one that has it. Returns None if nothing is
        recorded.
        """
        return None

    def close(self, status: str = "FINISHED") -> None:
        """Send all queued records and end the pipeline's run, unless its status is RUNNING."""

    def __enter__(self) -> Tracker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(status_after(error))


def open_tracker(
    config: TrackingConfig,
    *,
    pipeline_key: str,
    tags: Mapping[str, str],
    params: Mapping[str, Any],
    name: str = "pipeline",
) -> Tracker:
    """Find or create the pipeline's run (tag `bertline.pipeline_key`); use it as a context manager, or `close` it.

    A new run is called `name` and its key, until the figures of the pipeline give it a better name.

    Tracking errors do not stop the pipeline: an unreachable server is a warning, and the records are kept in the files
    under `runs/`.
    """
    if not config.enabled:
        return Tracker()
    try:
        from bertline.tracking.mlflow_tracker import MlflowTracker

        return MlflowTracker(config, pipeline_key=pipeline_key, tags=tags, params=params, name=name)
    except Exception as error:
        warn(f"tracking is off: {masked(config.uri)} cannot be opened ({masked(str(error))}). The work continues.")
        return Tracker()


def status_after(error: BaseException | None) -> str:
    """Return MLflow's status for a block that ended with this error; None for no error."""
    if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return "FINISHED"
    if isinstance(error, WorkContinues):
        return "RUNNING"
    return "FAILED" if isinstance(error, Exception) else "KILLED"


@contextmanager
def _nothing() -> Iterator[TrackedRun]:
    yield TrackedRun()
