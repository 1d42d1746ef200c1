"""Overrides on the command line: paths with any characters, and saved choices that no longer fit."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from fork_server import run_bertline, run_recipe
from projects import copy_project

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize("name", ["2020", "1e5"])
def test_a_task_named_like_a_number_can_be_registered_listed_and_run(tmp_path: Path, name: str) -> None:
    copy_project(tmp_path)
    shutil.copy(ROOT / "conf/task/docs_library.yaml", tmp_path / f"conf/task/{name}.yaml")
    stage = ("pipelines/task_data.py", f"task_name={name}")
    missing = run_recipe(tmp_path, *stage).stderr
    line = f'  - task@tasks.{name}: "{name}"\n'
    assert line in missing
    config = tmp_path / "conf/config.yaml"
    config.write_text(config.read_text().replace("defaults:\n", f"defaults:\n{line}"))
    for arguments in ((), ("optimizer.lr=0.002", "--save")):
        done = run_bertline(tmp_path, "configure", *arguments)
        assert done.returncode == 0, done.stderr
    assert name in yaml.safe_load((tmp_path / "params.yaml").read_text())["tasks"]
    again = run_recipe(tmp_path, *stage)
    assert "Traceback" not in again.stderr and "task_name is" not in again.stderr
