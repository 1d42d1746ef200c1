"""What bertline relies on in DVC. A failure here says which part of `dvc.yaml` or of the recipes an upgrade touches."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml


def stages(content: dict[str, Any], **more: Any) -> None:
    Path("dvc.yaml").write_text(yaml.safe_dump({**more, "stages": content}, sort_keys=False), encoding="utf-8")


def names_run(repo: Any) -> list[str]:
    repo._reset()  # forget what was read of dvc.yaml and params.yaml, as a new command would
    return [stage.addressing for stage in repo.reproduce()]


def log() -> list[str]:
    return Path("log").read_text().split()


def test_outputs_are_deleted_at_start_so_work_in_progress_lives_in_runs(project: Any) -> None:
    for name, outs in (("plain", ["out"]), ("kept", [{"out": {"persist": True, "cache": False}}])):
        Path("out").write_text("before")
        stages({name: {"cmd": f"if [ -e out ]; then echo {name}-there >> log; fi; echo x >> out", "outs": outs}})
        names_run(project)
    assert log() == ["kept-there"]


def test_a_stage_knows_its_name_from_dvc_stage_so_recipes_can_tell_dvc_from_a_hand(project: Any) -> None:
    stages(
        {"one": {"cmd": "echo $DVC_STAGE > log"}, "two": {"foreach": ["x"], "do": {"cmd": "echo $DVC_STAGE >> log"}}}
    )
    project.reproduce(["one"])
    project.reproduce(["two@x"])
    assert log() == ["one", "two@x"]


def test_a_folder_dependency_counts_pycache_unless_dvcignore_lists_it(project: Any) -> None:
    Path("src/__pycache__").mkdir(parents=True)
    Path("src/a.py").write_text("a")
    stages({"one": {"cmd": "echo a > out", "deps": ["src"], "outs": ["out"]}})
    names_run(project)
    Path("src/__pycache__/a.pyc").write_text("compiled")
    assert names_run(project) == ["one"]
    Path(".dvcignore").write_text("__pycache__/\n")
    assert names_run(project) == ["one"]  # the ignored folder leaves the recorded hash once
    Path("src/__pycache__/b.pyc").write_text("compiled")
    assert names_run(project) == []


@pytest.mark.parametrize(("link", "followed"), [("text", True), ("text/linked", False)])
def test_a_link_as_the_dependency_is_followed_and_one_inside_is_not_so_configure_refuses_it(
    project: Any, tmp_path: Path, link: str, followed: bool
) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir()
    (target / "a.txt").write_text("one")
    Path(link).parent.mkdir(exist_ok=True)
    Path(link).symlink_to(target)
    stages({"one": {"cmd": "echo a > out", "deps": ["text"], "outs": ["out"]}})
    assert names_run(project) == ["one"]
    assert names_run(project) == []
    (target / "a.txt").write_text("two")
    assert names_run(project) == (["one"] if followed else [])


@pytest.mark.parametrize(("name", "stale"), [("size", True), ("nfiles", True), ("hidden_size", False)])
def test_the_run_cache_ignores_parameters_called_size_or_nfiles_so_no_field_may_be_called_so(project, name, stale):
    # DVC leaves these two keys out of the run cache's key wherever they stand: it takes them for facts about files.
    for value in (1, 2):
        stages({"one": {"cmd": "cp params.yaml out", "params": ["model"], "outs": ["out"]}})
        Path("params.yaml").write_text(f"model: {{{name}: {value}}}\n")
        names_run(project)
    assert yaml.safe_load(Path("out").read_text()) == {"model": {name: 1 if stale else 2}}


def test_a_stage_that_always_runs_re_runs_only_what_depends_on_a_file_that_it_changed(project: Any) -> None:
    write = "mkdir -p seen; cp a seen/a; cp b seen/b@x"
    content: dict[str, Any] = {
        "configure": {"cmd": "cp conf params", "deps": ["conf"], "outs": [{"params": {"cache": False}}]},
        "seen": {"cmd": write, "always_changed": True, "deps": ["params"], "outs": [{"seen": {"cache": False}}]},
        "one": {"cmd": "cp seen/a one", "deps": ["seen/a"], "outs": ["one"]},
        "two": {"foreach": ["x"], "do": {"cmd": "cp seen/b@x two", "deps": ["seen/b@${item}"], "outs": ["two"]}},
    }
    for name in ("conf", "a", "b"):
        Path(name).write_text("1")
    stages(content)
    assert names_run(project) == ["configure", "seen", "one", "two@x"]
    assert names_run(project) == ["seen"]
    assert set(project.status()) == {"seen"}
    Path("b").write_text("2")
    assert names_run(project) == ["seen", "two@x"]
    Path("conf").write_text("2")
    assert names_run(project) == ["configure", "seen"]


def test_a_running_stage_is_in_rwlock_with_its_process_so_a_busy_lock_can_be_explained(project: Any) -> None:
    stages({"one": {"cmd": "cp .dvc/tmp/rwlock seen; echo a > out", "outs": ["out"]}})
    names_run(project)
    held = yaml.safe_load(Path("seen").read_text())["write"]
    assert [Path(path).name for path in held] == ["out"]
    assert [holder["pid"] for holder in held.values()] == [os.getpid()]
    assert all(isinstance(holder["cmd"], str) for holder in held.values())
    assert not any(yaml.safe_load(Path(".dvc/tmp/rwlock").read_text()).values())
