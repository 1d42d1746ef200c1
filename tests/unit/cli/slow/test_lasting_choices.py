"""Lasting choices, also those that no longer fit."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from fork_server import run_bertline, run_recipe
from projects import copy_project


def test_a_lasting_choice_is_kept_until_its_file_is_edited_and_one_that_does_not_fit_is_named(tmp_path: Path) -> None:
    copy_project(tmp_path)
    local = tmp_path / "conf/local/default.yaml"

    def configured(*arguments: str, status: int = 0) -> str:
        done = run_bertline(tmp_path, "configure", *arguments)
        assert done.returncode == status and "Traceback" not in done.stderr
        return done.stdout + done.stderr

    def tasks() -> list[str]:
        return list(yaml.safe_load((tmp_path / "params.yaml").read_text())["tasks"])

    configured()
    all_tasks = tasks()
    configured("tasks=[]", "--save")
    assert tasks() == []
    configured("tasks=[docs_search]", "tokenizer.vocab_size=4000", "--save")
    configured()
    assert tasks() == ["docs_search"]
    continued = ("experiment=continued", f"pretrain.start_from={tmp_path}")
    said = configured(*continued, status=1)
    assert "tokenizer.vocab_size is not a known key" in said and "conf/local/default.yaml: edit" in said
    recipe = run_recipe(tmp_path, str(tmp_path / "pipelines/tokenizer.py"), *continued)
    assert "conf/local/default.yaml: edit" in recipe.stderr
    before = local.read_text()
    assert "vocab_size" in configured(*continued, "--save", status=1)
    assert local.read_text() == before
    local.unlink()
    configured()
    assert tasks() == all_tasks
    configured("experiment=smoke", "tasks=[]")  # an experiment that sets values of the tasks that are left out


def test_saved_sources_are_watched_for_dvc(tmp_path: Path) -> None:
    copy_project(tmp_path)
    for name in ("one", "two"):
        (tmp_path / "texts" / name).mkdir(parents=True)
        for number in range(4):
            (tmp_path / "texts" / name / f"{number}.txt").write_text(f"Text {number} of {name} has a sentence. " * 5)
    named = [f"corpus.sources.{name}.path={tmp_path}/texts/{name}" for name in ("two", "one")]
    groups = [f"+source@corpus.sources.{name}=text" for name in ("two", "one")]
    done = run_bertline(
        tmp_path, "configure", "corpus=sources", *groups, *named, "corpus.sources.two.weight=2", "--save"
    )
    assert done.returncode == 0, done.stderr
    watched = json.loads((tmp_path / "artifacts/watched.json").read_text())["corpus"]["data"]
    assert watched == {f"corpus.sources.{name}.path": str(tmp_path / "texts" / name) for name in ("one", "two")}
