"""A stage being run: its validated configuration, inputs, run folder, output folder and records.

`run_stage` is what DVC, a person, `bertline finetune`, Slurm and ranks have in common; what a stage does is in
`stages/NAME.py`. Under DVC the result goes to `artifacts/`; by hand it goes to `runs/STAGE/FINGERPRINT/result`, never
over `artifacts/`.
"""

import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from bertline.config import PipelineConfig, how_to_register, sections_in, without_untracked
from bertline.demo.docstrings import docstrings_kept_in
from bertline.foundation import files
from bertline.foundation.errors import ArtifactError, BertlineError, ConfigError
from bertline.foundation.manifests import write_manifest
from bertline.foundation.mappings import differences, value_at
from bertline.foundation.progress import say
from bertline.foundation.signals import RECEIVED
from bertline.foundation.validation import to_mapping
from bertline.foundation.work import Work
from bertline.run import provenance
from bertline.run.fingerprints import code_fingerprint, reader_fingerprint
from bertline.run.folder import (
    FROZEN_CONFIG,
    RESULT_NAME,
    Status,
    do_work,
    finished_status,
    held,
    read_status,
    with_status,
    work_of,
)
from bertline.run.identity import IDENTITY, changed_inputs, data_of, digests_of_inputs, identity_of_stage, packages_of
from bertline.run.inputs import changed_sections, inputs_of_stage, named_inputs, tracked_sections
from bertline.run.presentation import add_result, source_tags, write_headline
from bertline.run.ranks import run_on_devices
from bertline.run.slurm import run_job
from bertline.run.stopping import Stopped, named
from bertline.stages.base import HEADLINE, METRICS, Stage, short_number
from bertline.stages.evaluate import pipeline_name
from bertline.stages.registry import stage_named, stages_of
from bertline.tracking.tracked_runs import TrackedRun, TrackedRuns, write_tracked_runs
from bertline.training.config import SlurmLauncherConfig
from bertline.training.environment import Node, this_node

# What a person compares pipelines by; `config.yaml` among the artifacts has the rest.
_HEADLINE_PARAMS = (
    "corpus.kind", "tokenizer.vocab_size", "model.num_hidden_layers", "model.hidden_size", "objective.kind",
    "optimizer.kind", "optimizer.lr", "pretrain.start_from", "pretrain.seed",
)  # fmt: skip


@dataclass(kw_only=True)
class StageRun:
    """One run of a stage."""

    stage: Stage
    task_name: str | None
    config: PipelineConfig
    inputs: dict[str, Path]
    """Folders of the inputs by artifact name (`examples`, ...), and the user's data by the key that names it."""
    made_of: dict[str, Any]
    """Everything that the result depends on: `sections`, `inputs`, `code`, `versions`."""
    figures: dict[str, float] = field(default_factory=dict)
    """Those of the status of work that is not long, which `finish` adds."""
    opened_s: float
    """When the stage was opened, in seconds of the monotonic clock."""
    is_done: bool = False
    """Whether an earlier command has done all of it."""

    @property
    def name(self) -> str:
        """Name of the stage in DVC, such as `sweep@docs_library`."""
        return self.stage.full_name(self.task_name)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of `made_of`."""
        return files.sha256_of_json(self.made_of)[:12]

    @property
    def folder(self) -> Path:
        """`runs/STAGE/FINGERPRINT`: the frozen configuration and all work in progress."""
        return Path(self.config.runtime.runs_folder) / self.name / self.fingerprint

    @cached_property
    def tracked(self) -> TrackedRuns:
        """What MLflow shows of this stage and of the pipeline; of the nodes of a run, only the first one records it."""
        enabled = self.config.tracking.enabled and _node(self.stage, self.config).is_first
        return opened_runs(self, without_untracked(to_mapping(self.config)), enabled=enabled)

    @cached_property
    def output(self) -> Path:
        """Folder of the result."""
        if provenance.running_under_dvc():
            return self.stage.output_of(self.task_name)
        return self.folder / RESULT_NAME

    @property
    def is_long(self) -> bool:
        """Whether the work can be resumed; a checkpoint that is taken as it is takes none."""
        return self.stage.is_long and (self.config.pretrains or self.stage.per_task)

    @property
    def work(self) -> Work:
        """What `Stage.build` and `Stage.show` are given."""
        return work_of(self.frozen, self.config, self.folder, self.output)

    def build(self) -> dict[str, float]:
        """Do the work, or resume it, and write its result to `output`; return its figures.

        Long work is done in this process or, on several devices, by torchrun with a process for each, or by a job of
        Slurm.
        """
        if not self.is_long:
            return self.stage.build(self.work)
        runtime, several = self.config.runtime, self.stage.on_several_devices
        try:
            if isinstance(runtime.launcher, SlurmLauncherConfig):
                metrics = _metrics(run_job(self.folder, runtime, ranks=several, freeze=self.freeze))
            elif several and runtime.num_devices * runtime.num_nodes > 1:
                metrics = self._build_on_devices()
            else:
                with held(self.folder):
                    status = finished_status(self.folder)
                    if status is None:
                        self.freeze()
                    metrics = status.metrics if status else do_work(self.folder)
        except KeyboardInterrupt as error:
            number = RECEIVED.first or signal.SIGINT
            if isinstance(error, Stopped) and "; " in str(error):
                raise  # it says what continues
            how = str(error).removeprefix(f"by {named(number)}").strip(": ")
            again = "run the same command again to resume"
            raise Stopped("; ".join(filter(None, [f"by {named(number)}", how, again])), number) from None
        if self.output != self.folder / RESULT_NAME:
            with files.folder_written_atomically(self.output) as temporary:
                shutil.copytree(self.folder / RESULT_NAME, temporary, dirs_exist_ok=True)
        return metrics

    def _build_on_devices(self) -> dict[str, float]:
        node = _node(self.stage, self.config)
        if node.is_first:
            with held(self.folder):  # waits; the first rank then holds it
                if (status := finished_status(self.folder)) is not None:
                    return status.metrics
                self.freeze()
        return _metrics(run_on_devices(self.folder, self.config.runtime, node))

    def finish(self, metrics: Mapping[str, float]) -> None:
        """Record the figures, print where the result is, and show it."""
        self._refuse_changes()
        self.figures |= metrics
        target = METRICS / f"{self.name}.json" if provenance.running_under_dvc() else self.folder / "metrics.json"
        files.write_json(target, dict(metrics))
        kept = self.folder / "headline.json"
        shown_by_dvc = HEADLINE / f"{self.name}.json" if provenance.running_under_dvc() else kept
        work_s = read_status(self.folder).work_s if self.is_long else None  # it may be of earlier commands
        seconds = time.monotonic() - self.opened_s if work_s is None else work_s
        write_headline(shown_by_dvc, self.stage, metrics, self.config.objective, seconds=seconds, kept=kept)
        stage_run = self.tracked.stage
        stage_run.log_artifact(target, contains_text=False)
        add_result(stage_run, self.config, self.stage, self.name, metrics, self.output)
        scores_first = sorted(metrics, key=lambda key: not key.startswith(("val/", "test/", "train/")))
        shown = ", ".join(f"{key} {short_number(metrics[key])}" for key in scores_first[:8])
        say(f"{self.name}: {self.output} ({shown})")
        self.stage.show(self.work, self.tracked, metrics)
        if self.stage.page is not None and provenance.running_under_dvc():
            page = Path(self.stage.page)
            page.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.folder / page.name, page)
        shutil.rmtree(self.work.shards, ignore_errors=True)
        write_tracked_runs(self.folder, self.tracked)

    def _refuse_changes(self) -> None:
        """Fail if DVC, which reads params.yaml and the inputs after the stage, would record others than it used."""
        if not provenance.running_under_dvc():
            return  # the frozen configuration is the record
        changed = changed_sections(self.stage, self.task_name, self.made_of["sections"])
        changed += changed_inputs(self.made_of["inputs"], self.inputs, Path(self.config.runtime.runs_folder))
        if not changed:
            return
        if not (self.folder / RESULT_NAME).exists():  # DVC deletes the outputs of a stage before it runs it again
            with files.folder_written_atomically(self.folder / RESULT_NAME) as temporary:
                shutil.copytree(self.output, temporary, dirs_exist_ok=True)
        raise ArtifactError(
            f"stage {self.name}: what it depends on changed since it started, so DVC would record it wrongly: "
            f"{', '.join(changed)}. Its result is kept in {self.folder / RESULT_NAME}. Run `dvc repro` again: the "
            "stage runs with what is there now, or takes that result if you set the configuration back"
        )

    @property
    def frozen(self) -> dict[str, Any]:
        """The content of the run folder's config.yaml."""
        return {
            "stage": self.stage.name,
            "task_name": self.task_name,
            "fingerprint": self.fingerprint,
            "inputs": {key: path.as_posix() for key, path in self.inputs.items()},
            "config": to_mapping(self.config),
            "commit": provenance.git_commit(),
            "made_of": {key: self.made_of[key] for key in ("inputs", "code", "versions")},
        }

    def freeze(self) -> None:
        """Write the run folder's config.yaml."""
        import yaml

        content = yaml.safe_dump(self.frozen, sort_keys=False, allow_unicode=True)
        files.write_atomically(self.folder / FROZEN_CONFIG, content)


def opened_runs(run: StageRun, tracked: dict[str, Any], *, enabled: bool) -> TrackedRuns:
    """Return what the runs of a stage and of its pipeline show from the start.

    Args:
        tracked: Configuration that results depend on; with the commit, it identifies the pipeline's run.
        enabled: Whether they are recorded.
    """
    commit = provenance.git_commit()
    tags = {"git.commit": commit, **source_tags(f"pipelines/{run.stage.name}.py")}
    if experiment := os.environ.get("DVC_EXP_NAME"):
        tags["dvc.experiment"] = experiment
    digests = {f"bertline.input_sha256.{key}": sha for key, sha in run.made_of["inputs"].items()}
    return TrackedRuns(
        tracking=replace(run.config.tracking, enabled=enabled),
        opened_s=time.time(),
        stage=TrackedRun(
            key=run.fingerprint,
            name=run.name,
            params=run.made_of["sections"],
            tags={**tags, "bertline.fingerprint": run.fingerprint, **digests},
            inputs={key: (str(path), provenance.artifact_digest(path)) for key, path in run.inputs.items()},
            attachments=list(run.stage.attachments),
            tables=list(run.stage.tables),
        ),
        pipeline=TrackedRun(
            key=files.sha256_of_json({"config": tracked, "commit": commit})[:12],
            name=pipeline_name(run.config),
            params={key: value for key in _HEADLINE_PARAMS if (value := value_at(tracked, key)) is not None},
            tags=tags,
            config=tracked,
        ),
    )


def run_stage(name: str, composed: Mapping[str, Any], places: Mapping[str, Path] | None = None) -> Path:
    """Run a stage, or resume it; return the folder of its result. The arguments are those of `open_stage`.

    By hand, work that is done already is not done again. A stage that the configuration does not use does nothing;
    under DVC it leaves a manifest that says why.
    """
    stage = stage_named(name)
    if stage.is_of_pretraining and not sections_in(composed).pretrains:
        _leave_empty(stage)
        return stage.output_of(None)
    with open_stage(name, composed, places=places) as run:
        if not run.is_done:
            run.finish(run.build())
        return run.output


@contextmanager
def open_stage(
    name: str, composed: Mapping[str, Any], *, places: Mapping[str, Path] | None = None
) -> Iterator[StageRun]:
    """Validate the configuration, find the inputs, and open the record in MLflow.

    Work that is not long is recorded, and its run folder locked, for the whole block; `StageRun.build` does that for
    the rest.

    Args:
        name: The stage's name, without a task.
        composed: The composed configuration, with `task_name` if the stage works on one task, and with `inputs`
            (folders by artifact name) to read instead of those in `artifacts/`; by hand only.
        places: More such folders.
    """
    opened_s, under_dvc = time.monotonic(), provenance.running_under_dvc()
    stage, task = stage_named(name), composed.get("task_name")
    if under_dvc:  # DVC runs one stage at a time; by hand nothing is written there
        files.drop_leftovers(stage.output_of(task))
    config = sections_in(composed)
    task = _task_of(stage, task, config)
    inputs = inputs_of_stage(stage, task, config, {**named_inputs(composed), **(places or {})})
    runs_folder, watched = Path(config.runtime.runs_folder), watched_of(stage, task, config)
    identity = identity_of_stage(watched, runs_folder)
    if under_dvc:
        _refuse_other_identity(stage.full_name(task), identity)
    made_of = {
        "sections": tracked_sections(stage, task, config),
        "inputs": {**digests_of_inputs(inputs, runs_folder), **identity["data"]},
        "code": identity["code"],
        "versions": identity["versions"],
    }
    inputs |= {key: Path(path) for key, path in watched["data"].items()}
    run = StageRun(stage=stage, task_name=task, config=config, inputs=inputs, made_of=made_of, opened_s=opened_s)
    if under_dvc:
        names = [stage.full_name(task) for stage, task in stages_of(config)]
        say(f"stage {names.index(run.name) + 1} of {len(names)}")
    with nullcontext() if run.is_long else held(run.folder):
        is_finished = not (run.is_long or under_dvc) and read_status(run.folder).state == "finished"
        run.is_done = is_finished and finished_status(run.folder) is not None
        if run.is_done:
            yield run
            return
        write_tracked_runs(run.folder, run.tracked)
        sent: AbstractContextManager[None] = nullcontext()
        if run.tracked.tracking.enabled:
            from bertline.tracking.sending import sending  # imports MLflow, which takes 2 s

            sent = sending(run.folder)
        with _docstrings_kept(Path(config.runtime.runs_folder) / "docstrings"), sent:
            if run.is_long:
                yield run
                return
            run.freeze()
            with with_status(run.folder, config) as run.figures:
                yield run


def watched_of(stage: Stage, task: str | None, config: PipelineConfig) -> dict[str, Any]:
    """Return what a stage's result depends on besides settings and artifacts, as `identity_of_stage` takes it."""
    return {
        "code": code_fingerprint(stage, config.tasks[task].kind if task else None),
        "packages": packages_of(stage, task, to_mapping(config)),
        "data": {key: path.as_posix() for key, path in data_of(stage, task, config).items()},
    }


def _refuse_other_identity(name: str, identity: Mapping[str, Any]) -> None:
    """Fail if code, packages or the user's data are others than DVC has just looked at, and would record."""
    path = IDENTITY / f"{name}.json"
    if path.exists() and (changed := differences(files.read_json(path), dict(identity))):
        raise ArtifactError(
            f"{path}, which DVC records with the result of stage {name}, does not say what is there now: "
            f"{', '.join([*changed][:5])} changed since it was written. Run `dvc repro` again, which writes it first"
        )


def _leave_empty(stage: Stage) -> None:
    """Write what dvc.yaml says of a stage that the configuration does not use; by hand nothing."""
    # Without the checkpoint's name, so that the folder is the same for every checkpoint.
    reason = "a checkpoint is fine-tuned as it is (pretrain.phases is empty)"
    say(f"{stage.name}: not used, {reason}")
    if not provenance.running_under_dvc():
        return
    with files.folder_written_atomically(stage.output_of(None)) as folder:
        write_manifest(folder, kind="unused", format_version=1, content={"stage": stage.name, "reason": reason})
    if stage.page is not None:
        text = f"<!doctype html><title>{stage.name}</title><p>{stage.name}: not used, {reason}\n"
        files.write_atomically(Path(stage.page), text)
    for folder in (METRICS, HEADLINE):
        files.write_json(folder / f"{stage.name}.json", {})


def _metrics(status: Status) -> dict[str, float]:
    """Return the figures of finished work."""
    if status.state == "finished":
        return status.metrics
    if status.state != "failed" and RECEIVED.first is not None:
        raise KeyboardInterrupt(status.message)
    why = {"failed": status.message, "stopped": f"the work was stopped {status.message}"}
    message = why.get(status.state, "the work was killed; its last words are above")
    raise BertlineError(f"{message}; run the same command again to resume")


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
