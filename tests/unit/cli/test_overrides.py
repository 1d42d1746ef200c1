"""Overrides on the command line: paths with any characters, and saved choices that no longer fit."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from bertline.cli import overrides, project
from bertline.cli.overrides import quoted_where_needed, with_saved_choices
from bertline.foundation.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
MARKS = ["two  spaces (2)", "Übung, neu", "a=b", "[draft] x", "it's", "100 % & more; #1!", "{a}", 'q"q', "back\\slash"]


def composed(override: str, *others: str, config: str = "config") -> DictConfig:
    """The configuration as overrides of a command line make it."""
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return compose(config, overrides=[*others, *quoted_where_needed([override])])


@pytest.mark.parametrize("name", MARKS)
@pytest.mark.parametrize("exists", [True, False])
def test_a_path_keeps_every_character(tmp_path: Path, name: str, exists: bool) -> None:
    folder = tmp_path / name
    if exists:
        folder.mkdir()
    assert composed(f"corpus.path={folder}", "corpus=text").corpus.path == str(folder)


def test_a_relative_path_that_looks_like_a_list_is_a_path_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project, "STARTED_IN", tmp_path)
    assert quoted_where_needed(["corpus.path=[a]"]) == ["corpus.path=[a]"]
    (tmp_path / "[a]").mkdir()
    assert quoted_where_needed(["corpus.path=[a]"]) == ["corpus.path='[a]'"]


def test_what_is_no_path_keeps_its_meaning() -> None:
    given = [
        "optimizer.lr=1e-3", "pretrain.phases=[{steps: 3, max_length: 16}]", "model=tiny,small",
        "corpus.path='a b'", "~task@tasks.one", "+x={a: 1}", "--cfg", "examples.lengths=[128", "evaluate.title=a b",
    ]  # fmt: skip
    assert quoted_where_needed(given) == given
    sweep = ["-m", "corpus.path=/a,/b"]
    assert quoted_where_needed(sweep) == sweep


@pytest.mark.parametrize("name", ["2020", "1e5", "2_0", "true", "docs_match"])
def test_the_name_of_a_task_is_text(name: str) -> None:
    assert composed(f"task_name={name}").task_name == name
    assert composed(f"name={name}", config="finetune").name == name
    assert composed("task_name=null").task_name is None


def test_a_folder_called_like_a_group_is_no_saved_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overrides, "LOCAL", tmp_path / "default.yaml")
    (tmp_path / "default.yaml").write_text("defaults:\n  - override /model: small\n  - _self_\n")
    for about in ("In 'local/default': Could not find 'model/small'", "model.x is no key: model=small"):
        assert with_saved_choices(about).endswith("--unset model")
    for path in ("/data/model/texts", "/data/my-model", "/data/model-2/texts", "../model"):
        message = f"corpus.path is {path}, which does not exist."
        assert with_saved_choices(message) == message


def test_tasks_are_chosen_among_those_registered() -> None:
    for names in ([], ["docs_match"], ["docs_match", "docs_library"]):
        assert sorted(composed(f"tasks=[{', '.join(names)}]").tasks) == sorted(names)
    with pytest.raises(ConfigError, match=r"cola is not a registered task \(docs_library, "):
        quoted_where_needed(["tasks=[cola]"])
