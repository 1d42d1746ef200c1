"""What bertline relies on in DVC. A failure here says which part of `dvc.yaml` or of the recipes an upgrade touches."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from dvc.repo import Repo


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repo]:
    """A DVC project without git in the current folder."""
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.delenv("DVC_STAGE", raising=False)
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")
    with Repo.init(no_scm=True) as repo:
        yield repo


def stages(content: dict[str, Any]) -> None:
    Path("dvc.yaml").write_text(yaml.safe_dump({"stages": content}), encoding="utf-8")


def names_run(repo: Any) -> list[str]:
    repo._reset()  # forget what was read of dvc.yaml and params.yaml, as a new command would
    return [stage.addressing for stage in repo.reproduce()]


def test_a_link_to_a_folder_inside_a_dependency_is_not_hashed_so_configure_refuses_it(
    project, tmp_path_factory
) -> None:
    target = tmp_path_factory.mktemp("elsewhere")
    (target / "a.txt").write_text("one")
    Path("text").mkdir()
    Path("text/b.txt").write_text("b")
    Path("text/linked").symlink_to(target)
    stages({"one": {"cmd": "echo a > out", "deps": ["text"], "outs": ["out"]}})
    names_run(project)
    (target / "a.txt").write_text("two")
    assert names_run(project) == []


@pytest.mark.parametrize(("name", "stale"), [("size", True), ("nfiles", True), ("hidden_size", False)])
def test_the_run_cache_ignores_parameters_called_size_or_nfiles_so_no_field_may_be_called_so(project, name, stale):
    # DVC leaves these two keys out of the run cache's key wherever they stand: it takes them for facts about files.
    for value in (1, 2):
        stages({"one": {"cmd": "cp params.yaml out", "params": ["model"], "outs": ["out"]}})
        Path("params.yaml").write_text(f"model: {{{name}: {value}}}\n")
        names_run(project)
    assert yaml.safe_load(Path("out").read_text()) == {"model": {name: 1 if stale else 2}}


def test_a_running_stage_is_in_rwlock_with_its_process_so_a_busy_lock_can_be_explained(project: Any) -> None:
    stages({"one": {"cmd": "cp .dvc/tmp/rwlock seen; echo a > out", "outs": ["out"]}})
    names_run(project)
    held = yaml.safe_load(Path("seen").read_text())["write"]
    assert [Path(path).name for path in held] == ["out"]
    assert [holder["pid"] for holder in held.values()] == [os.getpid()]
    assert all(isinstance(holder["cmd"], str) for holder in held.values())
    assert not any(yaml.safe_load(Path(".dvc/tmp/rwlock").read_text()).values())
