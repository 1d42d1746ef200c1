"""Records of a stage in MLflow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertline.foundation.files import sha256_of_path
from bertline.foundation.manifests import MANIFEST_NAME
from bertline.orchestration.config import PipelineConfig
from bertline.orchestration.run_pages import charted, stage_page
from bertline.orchestration.stages import Stage
from bertline.tracking.config import TrackingConfig
from bertline.tracking.tracker import TrackedRun, Tracker, open_tracker


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What the runs of a stage and of its pipeline are opened with."""

    name: str
    """Name of the stage with its task, such as `sweep@docs_library`."""
    key: str
    params: dict[str, Any]
    tags: dict[str, str]
    inputs: dict[str, tuple[str, str]]
    """Path and digest of each input by name."""
    pipeline_key: str
    pipeline_name: str
    pipeline_tags: dict[str, str]
    pipeline_params: dict[str, Any]
    pipeline_config: dict[str, Any]
    """The configuration that results depend on."""


@contextmanager
def opened(opening: Opening, tracking: TrackingConfig) -> Iterator[tuple[Tracker, TrackedRun]]:
    """Open, or continue, the runs of a stage and of its pipeline; both end with the block."""
    tracker = open_tracker(
        tracking,
        pipeline_key=opening.pipeline_key,
        tags=opening.pipeline_tags,
        params=opening.pipeline_params,
        name=opening.pipeline_name,
    )
    tracker.log_config(opening.pipeline_config)
    inputs = {name: (Path(path), digest) for name, (path, digest) in opening.inputs.items()}
    with (
        tracker,
        tracker.stage(opening.name, key=opening.key, params=opening.params, tags=opening.tags, inputs=inputs) as record,
    ):
        yield tracker, record


def follow_work(record: TrackedRun, stage: Stage, folder: Path) -> None:
    """Send curves, trials and other files of a run folder while its worker writes them."""
    record.follow(folder / "metrics.jsonl")
    record.follow_events(folder / "events.jsonl")
    record.follow_load(folder)
    for one in stage.attachments:
        if one.while_working:
            record.follow_artifact(folder / one.path, contains_text=one.contains_text)


def attach_work(record: TrackedRun, stage: Stage, folder: Path) -> None:
    """Attach the files of a run folder whose work is done."""
    for one in stage.attachments:
        if not one.while_working and (folder / one.path).exists():
            record.log_artifact(folder / one.path, contains_text=one.contains_text)
    for table in stage.tables:
        record.log_table(folder / table.path, table.name, wrong_only=table.wrong_only, contains_text=True)


def describe(
    record: TrackedRun, config: PipelineConfig, stage: Stage, name: str, metrics: Mapping[str, float], output: Path
) -> None:
    """Record the figures of a finished stage, its manifest, and what its page says."""
    record.log_metrics(charted(metrics))
    if (output / MANIFEST_NAME).exists():
        # Names of labels are the user's own words.
        record.log_artifact(output / MANIFEST_NAME, contains_text=stage.per_task)
    page = stage_page(config, stage, name, metrics, output)
    record.set_tags({**page, "bertline.output_sha256": sha256_of_path(output)})
