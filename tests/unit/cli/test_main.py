"""The command `bertline`: help, wrong commands, and where it works."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertline.cli.main import COMMANDS, _show_help, function_of
from fork_server import run_bertline
from projects import copy_project

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.usefixtures("fork_server")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_has_an_example_and_its_keys(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    _show_help(name, function_of(COMMANDS[name]))
    text = capsys.readouterr().out
    assert f"bertline {name} " in f"{text.splitlines()[2]} "
    assert ("label_column: null" in text) == (name == "finetune")
    assert "hydra:" not in text and "defaults:" not in text


def test_a_command_that_does_not_exist_is_answered_with_the_one_that_was_meant() -> None:
    done = run_bertline(ROOT, "finetun", "data=x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: there is no command 'finetun'. Did you mean finetune?\n"


def test_it_works_on_the_project_from_any_folder_inside(tmp_path: Path) -> None:
    folder = copy_project(tmp_path) / "notes/deep"
    folder.mkdir(parents=True)
    done = run_bertline(folder, "configure", "optimizer.lr=0.002", "--save")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "params.yaml").exists() and (tmp_path / "conf/local/default.yaml").exists()
    assert list(folder.iterdir()) == []


def test_outside_of_a_project_what_needs_one_says_so_and_the_rest_takes_the_packages_conf(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/config.yaml").write_text("another: program\n")  # of some other program with Hydra
    refused = run_bertline(tmp_path, "configure", "model=small")
    assert refused.returncode == 1 and "works in a clone" in refused.stderr
    planned = run_bertline(tmp_path, "plan", "experiment=bert_base", "plan.device=h100")
    assert planned.returncode == 0, planned.stderr
    assert list(tmp_path.glob("runs/plan/*/plan.json"))
