"""A stage being run: its validated configuration, inputs, run folder, output folder and records.

A recipe opens its stage, calls the library and passes the headline figures to `finish`:

    with open_stage("corpus", composed) as stage:
        stage.finish(build_corpus(stage.config.corpus, ..., stage.output, ...))

Under DVC the result goes to `artifacts/`; by hand it goes to `runs/STAGE/FINGERPRINT/result`, never over `artifacts/`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bertline.demo.docstrings import docstrings_kept_in
from bertline.foundation.errors import ArtifactError, ConfigError
from bertline.foundation.files import (
    drop_leftovers,
    folder_written_atomically,
    tidy_partial,
    write_atomically,
    write_json,
)
from bertline.foundation.mappings import ABSENT, differences
from bertline.foundation.progress import can_draw, say
from bertline.foundation.system_load import load_sampled
from bertline.foundation.validation import to_mapping
from bertline.orchestration.by_hand import place_by_hand
from bertline.orchestration.changed import changed_code, changed_sections, marks_of, refuse_changes, tracked_sections
from bertline.orchestration.config import SECTIONS, PipelineConfig, how_to_register, pipeline_config
from bertline.orchestration.digests import digests_of
from bertline.orchestration.fingerprints import code_fingerprint, reader_fingerprint, stage_versions
from bertline.orchestration.launching import run_in_worker
from bertline.orchestration.provenance import git_commit, running_under_dvc
from bertline.orchestration.run_pages import add_result, opening_record, write_headline
from bertline.orchestration.stages import ENCODERS, HEADLINE, METRICS, SOURCES, Stage, stage_named
from bertline.orchestration.status import RESULT_NAME, Status, mark_open, read_status, write_status
from bertline.orchestration.unfinished import CONFIG_NAME, check_unfinished
from bertline.orchestration.unused import is_unused, uses_pretrained
from bertline.orchestration.user_data import holds_nothing
from bertline.tracking.record import Record, RunRecord, leave_record
from bertline.tracking.sending import sending
from bertline.training.nodes import Node, this_node

# These two affect speed and locations, never results, so no fingerprint covers them.
UNTRACKED_SECTIONS = ("runtime", "tracking")
_DOCSTRINGS = "docstrings"


@dataclass(frozen=True, kw_only=True)
class StageRun:
    """A stage as a recipe uses it."""

    stage: Stage
    task_name: str | None
    config: PipelineConfig
    inputs: dict[str, Path]
    """Folders of the inputs by artifact name (`examples`, `checkpoint`, ...)."""
    marks: dict[str, str]
    """See `changed.marks_of`."""
    made_of: dict[str, Any]
    """Everything that the result depends on: `sections`, `inputs`, `code`, `versions`."""
    opened_s: float = 0.0
    """When the recipe opened the stage, in seconds of the monotonic clock."""

    @property
    def name(self) -> str:
        """Name of the stage in DVC, such as `sweep@docs_library`."""
        return self.stage.full_name(self.task_name)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of `made_of`."""
        return _digest(self.made_of)

    @property
    def folder(self) -> Path:
        """`runs/STAGE/FINGERPRINT`: the frozen configuration and all work in progress."""
        return Path(self.config.runtime.runs_folder) / self.name / self.fingerprint

    @cached_property
    def records(self) -> Record:
        """What MLflow shows of this stage and of the pipeline; of the nodes of a run, only the first one records it."""
        tracking = self.config.tracking
        enabled = tracking.enabled and _node(self.stage, self.config).is_first
        return opening_record(
            dataclasses.replace(self.config, tracking=dataclasses.replace(tracking, enabled=enabled)),
            self.stage,
            self.name,
            fingerprint=self.fingerprint,
            made_of=self.made_of,
            inputs=self.inputs,
            tracked=without_untracked(to_mapping(self.config)),
        )

    @property
    def record(self) -> RunRecord:
        """What MLflow shows of this stage."""
        return self.records.stage

    @cached_property
    def output(self) -> Path:
        """Folder of the result."""
        return Path(self.stage.output.format(task=self.task_name)) if running_under_dvc() else self.folder / RESULT_NAME

    def work(self, function: str) -> dict[str, float]:
        """Run the stage's long work in a worker process, or attach to a running one, and copy the result to `output`.

        Args:
            function: Function of a `Work` that does it, as an import path: `bertline.pretraining.run:run`.
        """
        metrics = run_in_worker(
            self.folder, function, self.config.runtime, several_devices=self.stage.on_several_devices
        )
        self._refuse_changes(kept=self.folder / RESULT_NAME)
        if self.output != self.folder / RESULT_NAME:
            with folder_written_atomically(self.output) as temporary:
                shutil.copytree(self.folder / RESULT_NAME, temporary, dirs_exist_ok=True)
        return metrics

    def finish(self, metrics: Mapping[str, float]) -> None:
        """Record the headline figures and print where the result is.

        Raises:
            ArtifactError: Under DVC, configuration, code or inputs changed since the stage was opened.
        """
        self._refuse_changes(kept=self.folder / RESULT_NAME if self.stage.in_worker else self.output)
        target = METRICS / f"{self.name}.json" if running_under_dvc() else self.folder / "metrics.json"
        write_json(target, dict(metrics))
        kept = self.folder / "headline.json"
        shown_by_dvc = HEADLINE / f"{self.name}.json" if running_under_dvc() else kept
        write_headline(shown_by_dvc, self.stage.name, metrics, self.config.objective, seconds=self._took_s(), kept=kept)
        self.record.log_artifact(target, contains_text=False)
        add_result(self.record, self.config, self.stage, self.name, metrics, self.output)
        leave_record(self.folder, self.records)
        scores_first = sorted(metrics, key=lambda key: not key.startswith(("val/", "test/", "train/")))
        shown = ", ".join(f"{key} {_short(metrics[key])}" for key in scores_first[:8])
        say(f"{self.name}: {self.output} ({shown})")

    def _took_s(self) -> float:
        """Return the seconds of the work. A worker writes its own: this command may have attached to it late."""
        work_s = read_status(self.folder).work_s if self.stage.in_worker else None
        return time.monotonic() - self.opened_s if work_s is None else work_s

    def _refuse_changes(self, *, kept: Path) -> None:
        """Fail if DVC would record the result with other dependencies than the frozen ones."""
        if not running_under_dvc():
            return  # the frozen configuration is the record
        present = {key: path for key, path in self.inputs.items() if path.exists()}
        digests = digests_of(present, Path(self.config.runtime.runs_folder))
        now = {key: digests.get(key, ABSENT) for key in self.inputs}
        changed = {
            "the configuration": changed_sections(self.stage, self.task_name, self.made_of["sections"]),
            "the code": changed_code(self.stage, self.made_of["code"]),
            "what it reads": [self.inputs[key].as_posix() for key in differences(self.made_of["inputs"], now)],
        }
        if any(changed.values()) and kept == self.output:
            # DVC deletes the outputs of a stage before it runs it again.
            kept = self.folder / RESULT_NAME
            with folder_written_atomically(kept) as temporary:
                shutil.copytree(self.output, temporary, dirs_exist_ok=True)
        refuse_changes(self.name, changed, kept=kept)


@contextmanager
def open_stage(
    name: str, composed: Mapping[str, Any], *, places: Mapping[str, Path] | None = None
) -> Iterator[StageRun]:
    """Validate the configuration, find the inputs, freeze both to the run folder and open the record in MLflow.

    Args:
        name: The stage's name, without a task.
        composed: The composed configuration, with `task_name` if the stage works on one task.
        places: Folders of inputs (`tasks`, `pretrain`) to read instead of those in `artifacts/`; by hand only.

    Raises:
        ConfigError: The configuration is not valid or names no known task, or an unfinished pretraining in another
            folder would end with the same weights.
        ArtifactError: A stage before this one has not been run.
        MachineError: Several nodes are configured, and this one does not know its rank among them.
    """
    opened_s = time.monotonic()
    stage, task = stage_named(name), composed.get("task_name")
    tidy_partial(METRICS)  # what killed stages left behind may be an input
    if running_under_dvc():  # DVC runs one stage at a time; by hand nothing is written there
        drop_leftovers(Path(stage.output.format(task=task)))
    config = pipeline_config({key: composed[key] for key in SECTIONS if key in composed})
    run = _stage_run(stage, _task_of(stage, task, config), config, places or {})
    if running_under_dvc():
        refuse_changes(run.name, {"the code": changed_code(stage, run.made_of["code"])})
    if stage.name == "pretrain":
        check_unfinished(run.folder, run.made_of)
    _freeze(run)
    opened = dataclasses.replace(run, opened_s=opened_s)
    leave_record(run.folder, opened.records)
    with (
        mark_open(run.folder),
        _docstrings_kept(Path(config.runtime.runs_folder) / _DOCSTRINGS),
        sending(run.folder) if opened.records.tracking.enabled else nullcontext(),
        nullcontext() if stage.in_worker else _status_written(run.folder),
        _load_sampled(run),
    ):
        yield opened


@contextmanager
def _status_written(folder: Path) -> Iterator[None]:
    """Write the status of work that a recipe does itself."""
    started_s = time.time()
    write_status(folder, Status(state="running", pid=os.getpid(), started_s=started_s))
    status = Status(state="failed", started_s=started_s)
    try:
        yield
        status = dataclasses.replace(status, state="finished")
    except KeyboardInterrupt:
        status = dataclasses.replace(status, state="stopped")
        raise
    finally:
        write_status(folder, dataclasses.replace(status, ended_s=time.time()))


def _load_sampled(run: StageRun) -> AbstractContextManager[None]:
    """Sample the load of this machine if the recipe does the work; else the worker does."""
    tracking = run.config.tracking
    if run.stage.in_worker or not (tracking.enabled and tracking.system_metrics):
        return nullcontext()
    return load_sampled(run.folder, tracking.system_metrics_every_s)


@contextmanager
def _docstrings_kept(folder: Path) -> Iterator[None]:
    """Cache docstrings (`docstrings_kept_in`); remove the cache if the reader's code changed meanwhile, since other
    processes load that code later."""
    reader = reader_fingerprint()
    try:
        with docstrings_kept_in(folder, reader=reader):
            yield
    finally:
        if reader_fingerprint() != reader:
            shutil.rmtree(folder, ignore_errors=True)


def _node(stage: Stage, config: PipelineConfig) -> Node:
    """Return the place of this machine: where a job does the work, the recipe is the only one."""
    starts_on_each = stage.on_several_devices and config.runtime.launcher.kind == "local"
    return this_node(config.runtime.num_nodes if starts_on_each else 1, os.environ)


def _task_of(stage: Stage, task: str | None, config: PipelineConfig) -> str | None:
    if not stage.per_task:
        return None
    if task is None or task not in config.tasks:
        raise ConfigError(
            f"task_name is {task!r}; stage {stage.name} works on one task of {', '.join(config.tasks) or '(none)'}. "
            f"For example: python pipelines/{stage.name}.py task_name={next(iter(config.tasks), 'NAME')}"
            + how_to_register(task)
        )
    return task


def _inputs_of(stage: Stage, task: str | None, config: PipelineConfig, places: Mapping[str, Path]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for template in stage.inputs:
        path = Path(template.format(task=task))
        if path.parent == ENCODERS:
            if not uses_pretrained(config.tasks[str(task)].start_from):
                continue  # the task has its own encoder
            path = Path(stage_named("pretrain").output)  # the encoder that the pointer refers to
        name = path.name if path.name != task else path.parent.name
        # By hand, sources are read where they are; their digests are for DVC.
        if is_unused(name, config) or (path == SOURCES and not running_under_dvc()):
            continue
        if name in places:
            path = places[name]
        elif not running_under_dvc():
            path = place_by_hand(path, config, lambda earlier, of: _stage_run(earlier, of, config, {}).folder)
        if path.parts[0] == "data" and (not path.exists() or holds_nothing(path)):
            continue  # a place for the user's data that this configuration does not use
        if path.exists():
            found[name] = path
        else:
            raise ArtifactError(f"{path} is missing: stage {stage.name} reads it. Run `dvc repro {stage.name}`.")
    for key, named in _paths_named(stage, task, config).items():
        if named is not None and Path(named).exists():
            found[key] = Path(named)  # by hand it need not be linked from its place in data/
    return found


def _stage_run(stage: Stage, task: str | None, config: PipelineConfig, places: Mapping[str, Path]) -> StageRun:
    """Return a stage under a configuration and with its present inputs, before it is opened."""
    inputs = _inputs_of(stage, task, config, places)
    marks = marks_of(inputs)
    made_of = {
        "sections": tracked_sections(stage, task, config),
        "inputs": digests_of(inputs, Path(config.runtime.runs_folder)),
        "code": code_fingerprint(stage),
        "versions": stage_versions(stage, task, to_mapping(config)),
    }
    return StageRun(stage=stage, task_name=task, config=config, inputs=inputs, marks=marks, made_of=made_of)


def _paths_named(stage: Stage, task: str | None, config: PipelineConfig) -> dict[str, str | None]:
    """Return the user's data that a stage reads, as named in the configuration; also `random` and hub names."""
    match stage.name:
        case "pretrain":
            return {"checkpoint": config.pretrain.start_from}
        case "task_data":
            return {"tasks": getattr(config.tasks[str(task)].source, "path", None)}
        case "sweep":
            return {
                "start": config.tasks[str(task)].start_from,
                "reference_encoder": config.sweep.reference_encoder,
            }
        case _:
            return {}


def _freeze(run: StageRun) -> None:
    """Write the run folder's config.yaml."""
    import yaml

    runtime = run.config.runtime
    if can_draw():  # progress at least every two seconds, if it is drawn as a bar
        runtime = dataclasses.replace(runtime, progress_every_s=min(runtime.progress_every_s, 2.0))
    frozen = {
        "stage": run.stage.name,
        "task_name": run.task_name,
        "fingerprint": run.fingerprint,
        "inputs": {key: path.as_posix() for key, path in run.inputs.items()},
        "input_marks": run.marks,
        "config": {**to_mapping(run.config), "runtime": to_mapping(runtime)},
        "commit": git_commit(),
        "made_of": {key: run.made_of[key] for key in ("inputs", "code", "versions")},
    }
    write_atomically(run.folder / CONFIG_NAME, yaml.safe_dump(frozen, sort_keys=False, allow_unicode=True))


def without_untracked(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a configuration that results depend on."""
    return {key: value for key, value in mapping.items() if key not in UNTRACKED_SECTIONS}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def _short(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
