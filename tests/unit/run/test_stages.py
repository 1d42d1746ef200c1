"""The stages and dvc.yaml say the same."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from bertline.foundation.files import write_json
from bertline.foundation.mappings import value_at
from bertline.run.provenance import stages_due
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
    assert DVC["encoders"]["deps"] == ["pipelines/encoders.py", "artifacts/pretrain"]
    assert f"{ENCODERS}/${{key}}" in DVC["sweep"]["do"]["deps"]


def test_the_registry_has_the_order_in_which_dvc_runs_the_stages() -> None:
    assert [stage.name for stage in STAGES] == [name for name in DVC if name in {stage.name for stage in STAGES}]


OUTPUTS = {
    stage.full_name(task): Path(stage.output.format(task=task))
    for stage in STAGES
    for task in (("a", "b") if stage.per_task else (None,))
}
FINISHED = {"tasks": {"a": {"rows": 1}, "b": {"rows": 1}}, "model": {"size": 1}, "sweep": {"seeds": 3}}
"""The configuration that dvc.lock records."""


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stages in dvc.lock, of a finished pipeline of two tasks; written by `json.dump`, which YAML reads."""
    monkeypatch.chdir(tmp_path)
    stages: dict[str, Any] = {
        "configure": {"outs": [{"path": "params.yaml", "md5": "1"}]},
        "encoders": {"deps": [{"path": "artifacts/pretrain", "md5": "1"}]},
    }
    for stage in STAGES:
        for task in ("a", "b") if stage.per_task else (None,):
            read = [f"artifacts/identity/{stage.full_name(task)}.json", *stage.inputs_of(task)]
            sections = [section.format(task=task) for section in stage.sections]
            stages[stage.full_name(task)] = {
                "deps": [{"path": path, "md5": "1"} for path in read],
                "params": {"params.yaml": {key: value for key in sections if (value := value_at(FINISHED, key))}},
                "outs": [{"path": stage.output.format(task=task), "md5": "1"}],
            }
    return stages


@pytest.mark.parametrize(
    ("running", "changed", "rest"),
    [
        ("export", {}, []),
        ("sweep@b", {}, ["evaluate", "export"]),
        ("sweep@a", {}, ["evaluate", "export"]),
        ("sweep@a", {"tasks.b.rows": 2}, ["sweep@b", "evaluate", "export"]),
        ("task_data@a", {"tasks.a.rows": 2}, ["sweep@a", "evaluate", "export"]),
        ("pretrain", {"model.size": 2}, ["sweep@a", "sweep@b", "evaluate", "export"]),
        ("sweep@a", {"sweep.seeds": 5}, ["sweep@b", "evaluate", "export"]),
        ("tokenizer", {}, ["examples", "pretrain", "sweep@a", "sweep@b", "evaluate", "export"]),
    ],
)
def test_of_the_stages_ahead_those_are_due_whose_inputs_or_settings_changed(lock, running, changed, rest) -> None:
    configured = copy.deepcopy(FINISHED)
    for key, value in changed.items():
        section, _, name = key.rpartition(".")
        value_at(configured, section)[name] = value
    Path("dvc.lock").write_text(json.dumps({"stages": lock}))
    names = list(OUTPUTS)
    assert stages_due({name: OUTPUTS[name] for name in names[names.index(running) :]}, configured) == [running, *rest]


def test_a_stage_that_dvc_does_not_know_or_whose_code_or_input_is_another_is_due(lock) -> None:
    ahead = {name: OUTPUTS[name] for name in ("task_data@b", "sweep@a", "sweep@b", "evaluate")}
    for spoil in (
        lambda: lock.pop("sweep@a"),
        lambda: write_json(Path("artifacts/identity/sweep@a.json"), {"code": {}}),
    ):
        spoil()
        Path("dvc.lock").write_text(json.dumps({"stages": lock}))
        assert "sweep@a" in stages_due(ahead, FINISHED)
    assert stages_due(OUTPUTS, FINISHED)[1:2] == ["tokenizer"]
    Path("dvc.lock").unlink()
    assert stages_due(OUTPUTS, FINISHED) == list(OUTPUTS), "a first run"
