"""Overrides on the command line: paths with any characters."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from bertline.cli.overrides import quoted_where_needed
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


def test_tasks_are_chosen_among_those_registered() -> None:
    for names in ([], ["docs_match"], ["docs_match", "docs_library"]):
        assert sorted(composed(f"tasks=[{', '.join(names)}]").tasks) == sorted(names)
    with pytest.raises(ConfigError, match=r"cola is not a registered task \(docs_library, "):
        quoted_where_needed(["tasks=[cola]"])
