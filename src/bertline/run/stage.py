"""A stage being run: its validated configuration, inputs, run folder, output folder and records.

A recipe opens its stage, calls the library and passes the headline figures to `finish`:

    with open_stage("corpus", composed) as stage:
        stage.finish(build_corpus(stage.config.corpus, ..., stage.output, ...))

The work runs in the recipe's own process. Under DVC the result goes to `artifacts/`; by hand it goes to
`runs/STAGE/FINGERPRINT/result`, never over `artifacts/`.
"""

import os
import pkgutil
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from bertline.config import SECTIONS, PipelineConfig, each_section, how_to_register, pipeline_config
from bertline.demo.docstrings import docstrings_kept_in
from bertline.foundation import files
from bertline.foundation.engine import Engine, engine_named
from bertline.foundation.errors import ArtifactError, BertlineError, ConfigError
from bertline.foundation.mappings import differences, value_at
from bertline.foundation.progress import say
from bertline.foundation.signals import RECEIVED
from bertline.foundation.validation import to_mapping
from bertline.foundation.work import Work
from bertline.run import provenance
from bertline.run.fingerprints import code_fingerprint, reader_fingerprint, stage_versions
from bertline.run.folder import (
    CONFIG_NAME,
    RESULT_NAME,
    Status,
    finished_status,
    held,
    read_frozen,
    read_status,
    recorded,
    work_of,
    write_status,
)
from bertline.run.ranks import run_on_devices
from bertline.run.records import add_result, opening_record, short_number, write_headline
from bertline.run.slurm import run_job
from bertline.run.stages import ENCODERS, HEADLINE, METRICS, SOURCES, STAGES, Stage, stage_named
from bertline.run.stopping import Stopped, named
from bertline.run.unused import is_unused, uses_pretrained
from bertline.run.user_data import holds_nothing
from bertline.tracking.record import Record, RunRecord, leave_record
from bertline.tracking.sending import sending
from bertline.training.config import SlurmLauncherConfig
from bertline.training.environment import Node, this_node

# These two affect speed and locations, never results, so no fingerprint covers them.
UNTRACKED_SECTIONS = ("runtime", "tracking")
PARAMS = Path("params.yaml")
_DOCSTRINGS = "docstrings"


@dataclass(kw_only=True)
class StageRun:
    """A stage as a recipe uses it."""

    stage: Stage
    task_name: str | None
    config: PipelineConfig
    inputs: dict[str, Path]
    """Folders of the inputs by artifact name (`examples`, `checkpoint`, ...)."""
    made_of: dict[str, Any]
    """Everything that the result depends on: `sections`, `inputs`, `code`, `versions`."""
    figures: dict[str, float] = field(default_factory=dict)
    """Those of the status, which `finish` adds where the recipe does the work."""
    opened_s: float
    """When the recipe opened the stage, in seconds of the monotonic clock."""

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
    def records(self) -> Record:
        """What MLflow shows of this stage and of the pipeline; of the nodes of a run, only the first one records it."""
        enabled = self.config.tracking.enabled and _node(self.stage, self.config).is_first
        return opening_record(self, without_untracked(to_mapping(self.config)), enabled=enabled)

    @property
    def engine(self) -> Engine:
        """Where the work on shards is done."""
        return engine_named(self.config.runtime.engine, self.config.runtime.num_workers)

    @property
    def shards(self) -> Path:
        """Folder of what `engine` makes of shards, from which a killed run resumes; removed by `finish`."""
        return self.folder / "shards"

    @property
    def record(self) -> RunRecord:
        """What MLflow shows of this stage."""
        return self.records.stage

    @cached_property
    def output(self) -> Path:
        """Folder of the result."""
        if provenance.running_under_dvc():
            return Path(self.stage.output.format(task=self.task_name))
        return self.folder / RESULT_NAME

    def work(self, function: str) -> dict[str, float]:
        """Do the stage's long work, or resume it, and copy its result to `output`; return its headline figures.

        `function` is the import path of a function of a `Work`: `bertline.pretraining.run:run`. With one device it is
        called in this process; with several, torchrun starts a process for each; under Slurm a job does the same.
        """
        runtime, several = self.config.runtime, self.stage.on_several_devices
        try:
            if isinstance(runtime.launcher, SlurmLauncherConfig):
                metrics = _metrics(run_job(self.folder, function, runtime, ranks=several, freeze=self.freeze))
            elif several and runtime.num_devices * runtime.num_nodes > 1:
                metrics = self._work_on_devices(function)
            else:
                with held(self.folder):
                    status = finished_status(self.folder)
                    if status is None:
                        self.freeze()
                    metrics = status.metrics if status else do_work(self.folder, function)
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

    def _work_on_devices(self, function: str) -> dict[str, float]:
        node = _node(self.stage, self.config)
        if node.is_first:
            with held(self.folder):  # waits; the first rank then holds it
                if (status := finished_status(self.folder)) is not None:
                    return status.metrics
                self.freeze()
        return _metrics(run_on_devices(self.folder, function, self.config.runtime, node))

    def finish(self, metrics: Mapping[str, float]) -> None:
        """Record the headline figures and print where the result is."""
        self._refuse_changes()
        self.figures |= metrics
        target = METRICS / f"{self.name}.json" if provenance.running_under_dvc() else self.folder / "metrics.json"
        files.write_json(target, dict(metrics))
        kept = self.folder / "headline.json"
        shown_by_dvc = HEADLINE / f"{self.name}.json" if provenance.running_under_dvc() else kept
        work_s = read_status(self.folder).work_s if self.stage.is_long else None  # it may be of earlier commands
        seconds = time.monotonic() - self.opened_s if work_s is None else work_s
        write_headline(shown_by_dvc, self.stage.name, metrics, self.config.objective, seconds=seconds, kept=kept)
        self.record.log_artifact(target, contains_text=False)
        add_result(self.record, self.config, self.stage, self.name, metrics, self.output)
        leave_record(self.folder, self.records)
        if self.stage.is_long and read_status(self.folder).state != "finished":  # nothing was to be done
            write_status(self.folder, Status(state="finished", metrics=dict(metrics)))
        scores_first = sorted(metrics, key=lambda key: not key.startswith(("val/", "test/", "train/")))
        shown = ", ".join(f"{key} {short_number(metrics[key])}" for key in scores_first[:8])
        shutil.rmtree(self.shards, ignore_errors=True)
        say(f"{self.name}: {self.output} ({shown})")

    def _refuse_changes(self) -> None:
        """Fail if DVC, which reads params.yaml and the inputs after the stage, would record others than it used."""
        if not provenance.running_under_dvc():
            return  # the frozen configuration is the record
        changed = changed_sections(self.stage, self.task_name, self.made_of["sections"])
        changed += provenance.changed_inputs(self.made_of["inputs"], self.inputs, Path(self.config.runtime.runs_folder))
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

    def freeze(self) -> None:
        """Write the run folder's config.yaml."""
        import yaml

        frozen = {
            "stage": self.stage.name,
            "task_name": self.task_name,
            "fingerprint": self.fingerprint,
            "inputs": {key: path.as_posix() for key, path in self.inputs.items()},
            "config": to_mapping(self.config),
            "commit": provenance.git_commit(),
            "made_of": {key: self.made_of[key] for key in ("inputs", "code", "versions")},
        }
        files.write_atomically(self.folder / CONFIG_NAME, yaml.safe_dump(frozen, sort_keys=False, allow_unicode=True))


@contextmanager
def open_stage(
    name: str, composed: Mapping[str, Any], *, places: Mapping[str, Path] | None = None
) -> Iterator[StageRun]:
    """Validate the configuration, find the inputs, and open the record in MLflow.

    A stage whose recipe does the work (`Stage.is_long` is False) is recorded, and its run folder locked, for the whole
    block; `StageRun.work` does that for the others.

    Args:
        name: The stage's name, without a task.
        composed: The composed configuration, with `task_name` if the stage works on one task, and with `inputs`
            (folders by artifact name) to read instead of those in `artifacts/`; by hand only.
        places: More such folders.
    """
    opened_s = time.monotonic()
    stage, task = stage_named(name), composed.get("task_name")
    files.tidy_partial(METRICS)  # what killed stages left behind may be an input
    if provenance.running_under_dvc():  # DVC runs one stage at a time; by hand nothing is written there
        files.drop_leftovers(Path(stage.output.format(task=task)))
    config = pipeline_config({key: composed[key] for key in SECTIONS if key in composed})
    task = _task_of(stage, task, config)
    inputs = _inputs_of(stage, task, config, {**_named_inputs(composed), **(places or {})})
    made_of = {
        "sections": tracked_sections(stage, task, config),
        "inputs": provenance.digests_of(inputs, Path(config.runtime.runs_folder)),
        "code": code_fingerprint(stage, config.tasks[task].kind if task else None),
        "versions": stage_versions(stage, task, to_mapping(config)),
    }
    run = StageRun(stage=stage, task_name=task, config=config, inputs=inputs, made_of=made_of, opened_s=opened_s)
    leave_record(run.folder, run.records)
    if provenance.running_under_dvc():
        say(_place(run, composed))
    with (
        _docstrings_kept(Path(config.runtime.runs_folder) / _DOCSTRINGS),
        sending(run.folder) if run.records.tracking.enabled else nullcontext(),
    ):
        if stage.is_long:
            yield run
            return
        with held(run.folder):
            run.freeze()
            with recorded(run.folder, config) as run.figures:
                yield run


def imported(function: str) -> Callable[..., Any]:
    """Return a function by its import path, such as `bertline.pretraining.run:run`."""
    if not function.startswith("bertline.") or ":" not in function:
        raise BertlineError(f"{function!r} does not name the work; expected bertline.MODULE:FUNCTION")
    return pkgutil.resolve_name(function)  # type: ignore[no-any-return]


def do_work(folder: Path, function: str) -> dict[str, float]:
    """Do the work of a run folder whose lock this process holds; return its headline figures."""
    frozen, config = read_frozen(folder)
    stage, work = stage_named(frozen["stage"]), work_of(frozen, config, folder)
    with recorded(folder, config, num_nodes=config.runtime.num_nodes if stage.on_several_devices else 1) as figures:
        _refuse_other_inputs(frozen, work)
        figures |= imported(function)(work)
        _refuse_other_inputs(frozen, work)
        provenance.write_provenance(folder / RESULT_NAME, frozen, config.runtime)
    return figures


def _refuse_other_inputs(frozen: Mapping[str, Any], work: Work) -> None:
    """Fail if inputs are not what a run folder was opened with: the result may be of the old content or of the new."""
    runs = Path(work.config.runtime.runs_folder)
    if paths := provenance.changed_inputs(frozen["made_of"]["inputs"], work.inputs, runs):
        raise ArtifactError(
            f"what {work.folder} was opened with has changed or is gone: {', '.join(paths)}. Run the same command "
            "again: it opens a run for what is there now"
        )


def _metrics(status: Status) -> dict[str, float]:
    """Return the figures of finished work."""
    if status.state == "finished":
        return status.metrics
    if status.state != "failed" and RECEIVED.first is not None:
        raise KeyboardInterrupt(status.message)
    why = {"failed": status.message, "stopped": f"the work was stopped {status.message}"}
    message = why.get(status.state, "the work was killed; its last words are above")
    raise BertlineError(f"{message}; run the same command again to resume")


def _named_inputs(composed: Mapping[str, Any]) -> dict[str, Path]:
    """Return the folders that `inputs.NAME=FOLDER` names."""
    folders = {name: Path(folder) for name, folder in (composed.get("inputs") or {}).items() if folder is not None}
    for name, folder in folders.items():
        if provenance.running_under_dvc():
            raise ConfigError(f"inputs.{name} is for stages that are run by hand; DVC knows those of dvc.yaml only.")
        if not folder.is_dir():
            raise ArtifactError(f"inputs.{name} is {folder}, which is no folder.")
    return folders


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


def _place(run: StageRun, composed: Mapping[str, Any]) -> str:
    """Return how far the whole pipeline is, `stage 9 of 15, about 8 min left`; the time where `plan` forecast it."""
    outputs = {
        stage.full_name(task): Path(stage.output.format(task=task))
        for stage in STAGES
        for task in (run.config.tasks if stage.per_task else (None,))
    }
    place = list(outputs).index(run.name)
    text = f"stage {place + 1} of {len(outputs)}"
    file = forecast_file(run.config)
    seconds = files.read_json(file) if file.exists() else {}
    due = provenance.stages_due(dict([*outputs.items()][place:]), composed)
    if not seconds.keys() >= set(due):
        return text
    return f"{text}, about {max(1, round(sum(seconds[name] for name in due) / 60))} min left"


def forecast_file(config: PipelineConfig) -> Path:
    """Return the file for the seconds that `plan` expects each stage of a configuration to take."""
    key = files.sha256_of_json(without_untracked(to_mapping(config)))[:12]
    return Path(config.runtime.runs_folder) / "plan" / key / "seconds.json"


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
    inputs: dict[str, Path] = {}
    for template in stage.inputs:
        path = Path(template.format(task=task))
        if path.parent == ENCODERS:
            if not uses_pretrained(config.tasks[str(task)].start_from):
                continue  # the task has its own encoder
            path = Path(stage_named("pretrain").output)  # the encoder that the pointer refers to
        name = path.name if path.name != task else path.parent.name
        # By hand, sources are read where they are; their digests are for DVC.
        if is_unused(name, config) or (path == SOURCES and not provenance.running_under_dvc()):
            continue
        if path.parts[0] == "data" and (not path.exists() or holds_nothing(path)):
            continue  # a place for the user's data that this configuration does not use
        if name not in places and not path.exists():
            raise ArtifactError(f"{path} is missing: stage {stage.name} reads it. Run `dvc repro {stage.name}`.")
        if name not in places and not provenance.running_under_dvc():
            _refuse_other_configuration(name, path, config)
            _refuse_other_content(name, path, Path(config.runtime.runs_folder))
        inputs[name] = places.get(name, path)
    for key, named_path in _paths_named(stage, task, config).items():
        if named_path is not None and Path(named_path).exists():
            inputs[key] = Path(named_path)  # by hand it need not be linked from its place in data/
    return inputs


def _refuse_other_configuration(name: str, artifact: Path, config: PipelineConfig) -> None:
    """Check by dvc.lock that an artifact, and those that it was made of, were made under this configuration."""
    lock = provenance.locked_stages()
    waiting, changed = [artifact], dict[str, tuple[Any, Any]]()
    while waiting:
        path = waiting.pop()
        for stage in STAGES:
            for task in config.tasks if stage.per_task else (None,):
                output = Path(stage.output.format(task=task))
                if path not in (output, *([output.parent] if stage.per_task else [])):
                    continue
                waiting += [Path(template.format(task=task)) for template in stage.inputs]
                made_under = lock.get(stage.full_name(task), {}).get("params", {}).get("params.yaml")
                if made_under is not None:
                    changed |= differences(_with_defaults(made_under, config), tracked_sections(stage, task, config))
    if changed:
        keys = ", ".join(f"{key} ({old!r} there, {new!r} here)" for key, (old, new) in sorted(changed.items())[:5])
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        raise ArtifactError(
            f"{artifact} was made under another configuration: {keys}{more}. Leave these keys as they are, or save "
            f"them and run `dvc repro`, or name a folder that was made under them: inputs.{name}=FOLDER"
        )


def _refuse_other_content(name: str, artifact: Path, runs_folder: Path) -> None:
    """Check by dvc.lock that nothing changed an artifact since DVC recorded it: a stage under DVC would not read it."""
    for output in (output for stage in provenance.locked_stages().values() for output in stage.get("outs", [])):
        path = Path(output["path"])
        if "md5" not in output or not path.exists() or artifact not in (path, *path.parents):
            continue
        md5 = provenance.digests_of({"": path}, runs_folder, provenance.md5_of_path)[""]
        if md5 != output["md5"]:
            raise ArtifactError(
                f"{path} was changed or damaged since it was made: its MD5 is {md5}, and dvc.lock records "
                f"{output['md5']}. Restore it (`dvc checkout --force {path}`) or make it again (`dvc repro`); to "
                f"read it as it is, name it: inputs.{name}={artifact}"
            )


def _with_defaults(made_under: Mapping[str, Any], config: PipelineConfig) -> dict[str, Any]:
    """Return sections of dvc.lock with the defaults of keys that no YAML names; invalid ones as they are."""
    whole = to_mapping(config)
    for key, value in made_under.items():
        section, _, name = key.partition(".")
        whole[section] = {**whole[section], name: value} if name else value
    try:
        checked = to_mapping(each_section(whole))
    except ConfigError:
        return dict(made_under)
    return {key: value_at(checked, key) for key in made_under}


def _paths_named(stage: Stage, task: str | None, config: PipelineConfig) -> dict[str, str | None]:
    """Return the user's data that a stage reads, as named in the configuration; also `random` and hub names."""
    match stage.name:
        case "pretrain":
            teacher, probe = getattr(config.objective, "teacher", None), config.pretrain.head_probe
            named = {"checkpoint": config.pretrain.start_from, "teacher": teacher}
            return named | {"treebank": None if probe is None else probe.treebank}
        case "task_data":
            asked = config.tasks[str(task)]
            return {"tasks": getattr(asked.source, "path", None), "unlabelled": asked.unlabelled}
        case "sweep":
            others = {f"encoder_{number}": name for number, name in enumerate(config.sweep.encoders, start=2)}
            asked = config.tasks[str(task)]
            return {"start": asked.start_from, "teacher": asked.teacher, **others}
        case _:
            return {}


def tracked_sections(stage: Stage, task: str | None, config: PipelineConfig) -> dict[str, Any]:
    """Return the part of a configuration that a result depends on, `{"tasks.docs_library": {...}, "sweep": ...}`."""
    whole = to_mapping(config)
    return {key: value_at(whole, key) for key in (template.format(task=task) for template in stage.sections)}


def changed_sections(stage: Stage, task: str | None, frozen: Mapping[str, Any]) -> list[str]:
    """Return the keys of params.yaml whose value changed since a stage started, with both values, as text."""
    import yaml

    try:
        present = yaml.safe_load(PARAMS.read_text(encoding="utf-8")) or {}
        config = pipeline_config({key: present[key] for key in SECTIONS if key in present})
        now = tracked_sections(stage, task, config)
    except (OSError, BertlineError) as error:
        return [f"{PARAMS} ({error})"]
    return [f"{key} (was {old!r}, is {new!r})" for key, (old, new) in differences(dict(frozen), now).items()]


def without_untracked(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a configuration that results depend on."""
    return {key: value for key, value in mapping.items() if key not in UNTRACKED_SECTIONS}
