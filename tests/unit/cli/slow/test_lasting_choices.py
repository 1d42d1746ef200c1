"""Overrides on the command line: paths with any characters, and saved choices that no longer fit."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from fork_server import run_bertline, run_recipe
from projects import copy_project


def test_the_encoder_alone_is_a_lasting_choice_that_can_be_taken_back(tmp_path: Path) -> None:
    copy_project(tmp_path)

    def configured(*arguments: str) -> None:
        done = run_bertline(tmp_path, "configure", *arguments)
        assert done.returncode == 0, done.stderr

    def tasks() -> list[str]:
        return list(yaml.safe_load((tmp_path / "params.yaml").read_text())["tasks"])

    configured()
    all_tasks = tasks()

    configured("tasks=[]", "--save")
    assert tasks() == []
    configured()
    assert tasks() == []
    configured("tasks=[docs_search]", "--save")
    assert tasks() == ["docs_search"]
    configured("--unset", "tasks")
    assert tasks() == all_tasks and len(all_tasks) > 1
    params = yaml.safe_load((tmp_path / "params.yaml").read_text())
    del params["tasks"][all_tasks[0]]  # as an experiment that leaves a task out
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    configured("--keep")
    assert tasks() == all_tasks[1:]
    configured("--unset", "tasks")
    configured("experiment=smoke", "tasks=[]")  # an experiment that sets values of the tasks that are left out


def test_saved_sources_are_watched_for_dvc_and_can_be_taken_back(tmp_path: Path) -> None:
    copy_project(tmp_path)
    for name in ("one", "two"):
        (tmp_path / "texts" / name).mkdir(parents=True)
        for number in range(4):
            (tmp_path / "texts" / name / f"{number}.txt").write_text(f"Text {number} of {name} has a sentence. " * 5)

    def configured(*arguments: str) -> str:
        done = run_bertline(tmp_path, "configure", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def sources() -> list[str]:
        params = yaml.safe_load((tmp_path / "params.yaml").read_text())
        names = sorted(params["corpus"].get("sources", {}))
        watched = json.loads((tmp_path / "artifacts/watched.json").read_text())["corpus"]["data"]
        if names:
            assert watched == {f"corpus.sources.{name}.path": str(tmp_path / "texts" / name) for name in names}
        return names

    named = [f"corpus.sources.{name}.path={tmp_path}/texts/{name}" for name in ("two", "one")]
    groups = [f"+source@corpus.sources.{name}=text" for name in ("two", "one")]
    configured("corpus=sources", *groups, *named, "corpus.sources.two.weight=2", "--save")
    assert sources() == ["one", "two"]
    done = run_recipe(tmp_path, str(tmp_path / "pipelines/corpus.py"), "corpus=text", f"corpus.path={tmp_path}/texts")
    assert "corpus.sources is not a known key" in done.stderr
    assert ": saved in conf/local/default.yaml. If no longer wanted: bertline configure --unset " in done.stderr
    configured("--unset", "corpus.sources.one")
    assert sources() == ["two"]
    said = configured("corpus=text", f"corpus.path={tmp_path}/texts/two", "--save")
    assert "what corpus was before: source@corpus.sources.two, corpus.sources.two.path, corpus.sources.two.we" in said
    assert sources() == []
    configured("--unset", "corpus")
    assert yaml.safe_load((tmp_path / "params.yaml").read_text())["corpus"]["kind"] == "python_docs"


def test_a_saved_choice_that_no_longer_fits_is_named_with_its_file_and_the_command_that_unsets_it(
    tmp_path: Path,
) -> None:
    copy_project(tmp_path)
    local = tmp_path / "conf/local/default.yaml"

    def configured(*arguments: str) -> str:
        done = run_bertline(tmp_path, "configure", *arguments)
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    configured("tokenizer.vocab_size=4000", "optimizer.lr=0.002", "--save")
    continued = ("experiment=continued", f"pretrain.start_from={tmp_path}")
    said = configured(*continued)
    assert "tokenizer.vocab_size is not a known key" in said
    assert "saved in conf/local/default.yaml" in said
    assert "bertline configure --unset tokenizer.vocab_size\n" in said
    recipe = run_recipe(tmp_path, str(tmp_path / "pipelines/tokenizer.py"), *continued)
    assert "--unset tokenizer.vocab_size\n" in recipe.stderr
    configured("--unset", "tokenizer.vocab_size")
    assert yaml.safe_load(local.read_text()) == {"defaults": ["_self_"], "optimizer": {"lr": 0.002}}
    assert "tokenizer.vocab_size is not saved. Saved: optimizer.lr." in configured("--unset", "tokenizer.vocab_size")

    configured("model=small", "--save")  # also a choice of which nothing can be composed any more
    local.write_text(local.read_text().replace("small", "renamed"))
    assert "no longer saved in conf/local/default.yaml: model" in configured("--unset", "model")
