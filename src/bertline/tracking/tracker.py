"""What a recipe tells tracking. This module costs nothing to import; MLflow is loaded when tracking is enabled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from bertline.foundation.progress import warn
from bertline.tracking.addresses import masked
from bertline.tracking.champions import Standing
from bertline.tracking.config import TrackingConfig


class StageRun:
    """One stage's run. This base records nothing: it is what disabled tracking gives."""

    run_id: str | None = None
    """MLflow's id; None while (or where) nothing is recorded."""

    def follow(self, metrics_jsonl: Path) -> None:
        """Send the file's metrics by step while it grows, each (key, step) once, until the stage ends.

        On a finished run it sends only what is missing, so it is also the way to send a run made offline.
        """

    def follow_events(self, events_jsonl: Path) -> None:
        """Make a nested run from each of the sweep's trials and repetitions as they end, each once."""

    def follow_artifact(self, path: Path, *, contains_text: bool) -> None:
        """Attach a file as it is now, and again whenever it is written anew, until the stage ends.

        With `contains_text` it goes to a server elsewhere only if `log_text` allows.
        """

    def log_metrics(self, metrics: Mapping[str, float]) -> None:
        """The stage's headline figures, once it is done; one with the name of a followed curve gets `final/` before."""

    def log_artifact(self, path: Path, *, contains_text: bool) -> None:
        """Attach a file or folder. With `contains_text` it goes to a server elsewhere only if `log_text` allows."""

    def log_datasets(self, inputs: Mapping[str, tuple[Path, str]]) -> None:
        """Name what the stage read: name to (path, digest); DVC's hash is the digest to give."""

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Set tags, for example the content hashes of outputs."""


class Tracker:
    """The line's run and the runs of its stages. This base records nothing: it is what disabled tracking gives."""

    run_id: str | None = None

    def stage(
        self,
        name: str,
        *,
        key: str,
        params: Mapping[str, Any],
        tags: Mapping[str, str],
        inputs: Mapping[str, tuple[Path, str]],
    ) -> AbstractContextManager[StageRun]:
        """The run of a stage, nested in the line's; an unfinished one with the same name and key is continued.

        It ends FINISHED; FAILED after an error; KILLED after Ctrl-C or an exit before the end.
        """
        return _nothing()

    def log_line_metrics(self, metrics: Mapping[str, float]) -> None:
        """Headline figures of the whole line."""

    def log_line_artifact(self, path: Path, *, contains_text: bool) -> None:
        """Attach a file or folder to the line's run."""

    def set_line_tags(self, tags: Mapping[str, str]) -> None:
        """Set tags of the line's run."""

    def register(
        self, name: str, folder: Path, *, alias: str, tags: Mapping[str, str], standing: Standing | None = None
    ) -> str | None:
        """Make `folder` a version of the registered model `name` with this alias, and return the version.

        The same content again gets the alias, not a second version. With a `standing`, its alias moves here too if
        this version beats the one that has it. None where nothing is recorded.
        """
        return None

    def close(self, status: str = "FINISHED") -> None:
        """Send what is waiting and end the line's run."""

    def __enter__(self) -> Tracker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(status_after(error))


def open_tracker(
    config: TrackingConfig, *, line_key: str, tags: Mapping[str, str], params: Mapping[str, Any]
) -> Tracker:
    """Find or create the line's run (tag `bertline.line_key`); use it as a context manager, or `close` it.

    Nothing that goes wrong with tracking stops the work: a server that cannot be reached is a warning, and what was
    to be recorded is in the files under `runs/`.
    """
    if not config.enabled:
        return Tracker()
    try:
        from bertline.tracking.mlflow_tracker import MlflowTracker

        return MlflowTracker(config, line_key=line_key, tags=tags, params=params)
    except Exception as error:
        warn(f"tracking is off: {masked(config.uri)} cannot be opened ({masked(str(error))}). The work goes on.")
        return Tracker()


def status_after(error: BaseException | None) -> str:
    """MLflow's status for how a block ended."""
    if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return "FINISHED"
    return "FAILED" if isinstance(error, Exception) else "KILLED"


@contextmanager
def _nothing() -> Iterator[StageRun]:
    yield StageRun()
