"""record.json of a run folder: what the runs of a stage and of its pipeline show in MLflow besides
the curves.

A stage leaves it when it opens, and again with its figures and pages when it has finished. Together
with the folder's other files (`metrics.jsonl`, `events.jsonl`, `system*.jsonl`, `status.json`) it
is all that `sending` needs, so another process can send the run at any later time. It has no
secrets: a configuration with secrets is refused.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertline.foundation.errors import ArtifactError, ConfigError
from bertline.foundation.files import read_json, sha256_of_path, write_json
from bertline.foundation.validation import validate
from bertline.tracking.config import TrackingConfig

RUNS_NAME = "record.json"
NAME_TAG = "mlflow.runName"
NOTE_TAG = "mlflow.note.content"
"""Tag with the text, in Markdown, that MLflow shows on the page of a run, an experiment or a model."""
PARENT_TAG = "mlflow.parentRunId"
PIPELINE_KEY_TAG = "bertline.pipeline_key"
STAGE_TAG, STAGE_KEY_TAG = "bertline.stage", "bertline.stage_key"
TRIAL_TAG = "bertline.trial"


@dataclass(frozen=True, kw_only=True, slots=True)
class Attachment:
    """A file or folder that a run shows among its artifacts, once the stage has finished."""

    path: str
    """Path, relative to the run folder or absolute."""
    contains_text: bool
    """Whether it is sent to a remote server only if `tracking.log_text` allows."""
    while_working: bool = False
    """Whether it is attached as soon as it is written, and again whenever it is rewritten."""
    sha256: str | None = None
    """Digest of the content that is meant, for a place that a later run writes to as well."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownTable:
    """A Parquet file with the user's text, whose first rows a run shows as a table, once the stage
    has finished."""

    path: str
    """Path, relative to the run folder or absolute."""
    name: str
    num_rows: int = 1000
    """Most rows that are shown."""
    wrong_only: bool = False
    """Whether to show only rows that were predicted wrongly (`correct` below 1)."""
    sha256: str | None = None
    """Digest of the content that is meant, as for an attachment."""


@dataclass(kw_only=True, slots=True)
class TrackedRun:
    """What one run of MLflow shows."""

    key: str
    """Identifies the run: of a stage its fingerprint."""
    name: str
    params: dict[str, Any]
    tags: dict[str, str]
    inputs: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Path and DVC's digest of each input by name."""
    config: dict[str, Any] | None = None
    """The configuration, shown as the artifact `config.yaml`."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Headline figures; those with the name of a curve are shown as `final/NAME`."""
    attachments: list[Attachment] = field(default_factory=list)
    tables: list[ShownTable] = field(default_factory=list)

    @property
    def files(self) -> list[Attachment | ShownTable]:
        """Attachments and tables."""
        return [*self.attachments, *self.tables]

    def log_metrics(self, metrics: Mapping[str, float]) -> None:
        """Add headline figures."""
        self.metrics.update({key: float(value) for key, value in metrics.items()})

    def log_artifact(self, path: Path, *, contains_text: bool) -> None:
        """Attach a file or folder as it is now; a missing one is left out."""
        if path.exists():
            place, sha256 = str(path.resolve()), sha256_of_path(path)
            self.attachments.append(Attachment(path=place, contains_text=contains_text, sha256=sha256))

    def log_table(self, path: Path, name: str, *, num_rows: int) -> None:
        """Attach the first rows of a Parquet file as a table."""
        place, sha256 = str(path.resolve()), sha256_of_path(path)
        self.tables.append(ShownTable(path=place, name=name, num_rows=num_rows, sha256=sha256))


@dataclass(kw_only=True, slots=True)
class TrackedRuns:
    """The runs of a stage and of its pipeline, and the server that they belong to."""

    tracking: TrackingConfig
    opened_s: float
    """When the stage was opened, in seconds since the epoch."""
    stage: TrackedRun
    pipeline: TrackedRun


def write_tracked_runs(folder: Path, record: TrackedRuns) -> None:
    """Write or replace the record of a run folder; not if tracking is disabled."""
    if record.tracking.enabled:
        write_json(folder / RUNS_NAME, dataclasses.asdict(record))


def read_tracked_runs(folder: Path) -> TrackedRuns:
    """Read what `write_tracked_runs` left in a run folder.

    Raises:
        ArtifactError: There is nothing, or another version of bertline wrote it.
    """
    path = folder / RUNS_NAME
    try:
        return validate(TrackedRuns, read_json(path))
    except ConfigError as error:
        raise ArtifactError(f"{path} was written by another version of bertline ({error})") from error
