"""The stages and dvc.yaml say the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bertline.stages.base import ENCODERS, HEADLINE, METRICS, Stage
from bertline.stages.registry import STAGES

ROOT = Path(__file__).resolve().parents[3]
DVC = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]


def dvc_stage(stage: Stage) -> dict:
    entry = DVC[stage.name]
    return entry["do"] if stage.per_task else entry


def as_dvc(text: str) -> str:
    return text.replace("{task}", "${key}")


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_dvc_lists_what_the_stage_has(stage: Stage) -> None:
    entry, full_name = dvc_stage(stage), f"{stage.name}{'@${key}' * stage.per_task}"
    assert entry["cmd"] == f"python pipelines/{stage.name}.py" + " task_name=${key}" * stage.per_task
    assert set(entry["params"]) == {as_dvc(section) for section in stage.sections}
    assert set(entry["deps"]) == {f"artifacts/identity/{full_name}.json", *map(as_dvc, stage.inputs)}
    # All of these outputs are cached, and what a stage leaves in git is declared: else its run cache has no entry.
    assert entry["outs"] == [as_dvc(stage.output), *filter(None, [stage.page])]
    # What `dvc metrics show` prints are the headline figures: with all figures it is wider than any terminal.
    assert entry["metrics"] == [{(HEADLINE / f"{full_name}.json").as_posix(): {"cache": False}}]
    assert entry["plots"] == [{(METRICS / f"{full_name}.json").as_posix(): {"cache": False}}]


def test_no_stage_depends_on_figures_or_pages_so_that_a_changed_second_runs_nothing() -> None:
    stages = [entry.get("do", entry) for entry in DVC.values()]
    read = {Path(dep) for entry in stages for dep in entry.get("deps", ())}
    shown = {HEADLINE, METRICS, *(Path(stage.page) for stage in STAGES if stage.page)}
    assert not [path for path in read if shown & {path, *path.parents}]


def test_identities_are_looked_at_each_time_and_after_configure() -> None:
    stage = DVC["identity"]
    assert stage["always_changed"] is True
    assert set(stage["deps"]) < {next(iter(out)) for out in DVC["configure"]["outs"]}
    assert stage["outs"] == [{"artifacts/identity": {"cache": False}}]


def test_the_pointers_of_the_tasks_depend_on_the_pretrained_encoder_and_nothing_else() -> None:
    assert DVC["encoders"]["params"] == ["tasks"]
    assert DVC["encoders"]["deps"] == ["pipelines/encoders.py", "src/bertline/stages/sweep.py", "artifacts/pretrain"]
    assert f"{ENCODERS}/${{key}}" in DVC["sweep"]["do"]["deps"]


def test_the_registry_has_the_order_in_which_dvc_runs_the_stages() -> None:
    assert [stage.name for stage in STAGES] == [name for name in DVC if name in {stage.name for stage in STAGES}]
