"""The stage map and dvc.yaml say the same; the task lists agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from bertline.cli.overrides import registered_tasks
from bertline.run.stages import HEADLINE, METRICS, STAGES, Stage, stage_named

ROOT = Path(__file__).resolve().parents[3]
DVC = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]


def dvc_stage(stage: Stage) -> dict:
    entry = DVC[stage.name]
    return entry["do"] if stage.per_task else entry


def as_dvc(text: str) -> str:
    return text.replace("{task}", "${item}")


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_dvc_lists_what_the_stage_map_has(stage: Stage) -> None:
    entry, full_name = dvc_stage(stage), f"{stage.name}{'@${item}' * stage.per_task}"
    assert entry["cmd"] == f"python pipelines/{stage.name}.py" + " task_name=${item}" * stage.per_task
    assert set(entry["params"]) == {as_dvc(section) for section in stage.sections}
    versions = {f"artifacts/versions/{full_name}"} if stage.versions or stage.versions_where else set()
    assert set(entry["deps"]) == {f"artifacts/code/{full_name}", *versions, *map(as_dvc, stage.inputs)}
    # All of these outputs are cached, and what a stage leaves in git is declared: else its run cache has no entry.
    assert entry["outs"] == [as_dvc(stage.output), *filter(None, [stage.page])]
    if stage.name == "encoders":
        assert "metrics" not in entry and "plots" not in entry
        return
    # What `dvc metrics show` prints are the headline figures: with all figures it is wider than any terminal.
    assert entry["metrics"] == [{(HEADLINE / f"{full_name}.json").as_posix(): {"cache": False}}]
    assert entry["plots"] == [{(METRICS / f"{full_name}.json").as_posix(): {"cache": False}}]


def test_no_stage_depends_on_figures_or_pages_so_that_a_changed_second_runs_nothing() -> None:
    stages = [entry.get("do", entry) for entry in DVC.values()]
    read = {Path(dep) for entry in stages for dep in entry.get("deps", ())}
    shown = {HEADLINE, METRICS, *(Path(stage.page) for stage in STAGES if stage.page)}
    assert not [path for path in read if shown & {path, *path.parents}]


def test_versions_are_looked_at_each_time_and_after_configure() -> None:
    stage = DVC["versions"]
    assert stage["always_changed"] is True
    assert stage["deps"] == ["params.yaml"]
    assert stage["outs"] == [{"artifacts/versions": {"cache": False}}]


def test_both_task_lists_name_the_same_tasks() -> None:
    listed = yaml.safe_load((ROOT / "conf/tasks.yaml").read_text())["task_names"]
    assert listed == list(registered_tasks())


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
