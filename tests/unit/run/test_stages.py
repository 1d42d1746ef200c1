"""The stage map and dvc.yaml say the same; the task lists agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from bertline.run.stages import HEADLINE, METRICS, STAGES, Stage, stage_named

ROOT = Path(__file__).resolve().parents[3]
DVC = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]


def dvc_stage(stage: Stage) -> dict:
    entry = DVC[stage.name]
    return entry["do"] if stage.per_task else entry


def as_dvc(text: str) -> str:
    return text.replace("{task}", "${item}")


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_dvc_lists_the_sections_inputs_and_output_of_the_stage_map(stage: Stage) -> None:
    entry = dvc_stage(stage)
    assert set(entry["params"]) == {as_dvc(section) for section in stage.sections}
    versions = (
        {f"artifacts/versions/{stage.name}{'@${item}' * stage.per_task}"}
        if stage.versions or stage.versions_where
        else set()
    )
    assert set(entry["deps"]) == {f"artifacts/code/{stage.name}", *versions, *map(as_dvc, stage.inputs)}
    assert entry["outs"] == [as_dvc(stage.output), *filter(None, [stage.page])]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_what_a_stage_leaves_in_git_is_declared_so_that_dvc_enters_the_stage_in_its_run_cache(stage: Stage) -> None:
    entry = dvc_stage(stage)
    file = f"{stage.name}{'@${item}' * stage.per_task}.json"
    assert all(isinstance(out, str) for out in entry["outs"])  # cached
    if stage.name == "encoders":
        assert "metrics" not in entry and "plots" not in entry
        return
    # What `dvc metrics show` prints are the headline figures: with all figures it is wider than any terminal.
    assert entry["metrics"] == [{(HEADLINE / file).as_posix(): {"cache": False}}]
    assert entry["plots"] == [{(METRICS / file).as_posix(): {"cache": False}}]


def test_no_stage_depends_on_figures_or_pages_so_that_a_changed_second_runs_nothing() -> None:
    stages = [entry.get("do", entry) for entry in DVC.values()]
    read = {Path(dep) for entry in stages for dep in entry.get("deps", ())}
    shown = {HEADLINE, METRICS, *(Path(stage.page) for stage in STAGES if stage.page)}
    assert not [path for path in read if shown & {path, *path.parents}]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_the_command_of_a_stage_holds_nothing_that_changes(stage: Stage) -> None:
    command = dvc_stage(stage)["cmd"]
    assert command == f"python pipelines/{stage.name}.py" + " task_name=${item}" * stage.per_task


def test_versions_are_looked_at_each_time_and_after_configure() -> None:
    stage = DVC["versions"]
    assert stage["always_changed"] is True
    assert stage["deps"] == ["params.yaml"]
    assert stage["outs"] == [{"artifacts/versions": {"cache": False}}]


def test_both_task_lists_name_the_same_tasks() -> None:
    listed = yaml.safe_load((ROOT / "conf/tasks.yaml").read_text())["task_names"]
    defaults = yaml.safe_load((ROOT / "conf/config.yaml").read_text())["defaults"]
    composed = [
        key.removeprefix("task@tasks.")
        for item in defaults
        if isinstance(item, dict)
        for key in item
        if key.startswith("task@tasks.")
    ]
    assert listed == composed


def test_no_source_is_listed_for_the_default_corpus_and_the_corpus_depends_on_those_listed() -> None:
    assert yaml.safe_load((ROOT / "conf/sources.yaml").read_text()) == {"source_names": []}
    source = DVC["source"]
    assert source["foreach"] == "${source_names}"
    assert source["do"]["deps"] == ["data/sources/${item}"]
    assert Path(source["do"]["outs"][0]).parent.as_posix() in DVC["corpus"]["deps"]


@pytest.mark.parametrize("stage", ["pretrain", "sweep"])
def test_a_recipe_names_the_worker_that_the_fingerprint_covers(stage: str) -> None:
    (named,) = re.findall(r"(bertline(?:\.\w+)+):\w+", (ROOT / "pipelines" / f"{stage}.py").read_text(encoding="utf-8"))
    assert stage_named(stage).modules == (named,)
