"""Access to a store: its formats and limits, and where its files lie."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from bertline.tracking.config import TrackingConfig
from bertline.tracking.sending import send, without_text
from bertline.tracking.store import MAX_PARAM_CHARACTERS, _only_one, cut, flatten
from tracking_inputs import opened, record


def test_long_values_are_cut_to_the_limit_with_a_note() -> None:
    value = flatten({"key": "x" * 10_000})["key"]
    assert len(value) <= MAX_PARAM_CHARACTERS
    assert value.endswith("… (cut, 10000 characters)")
    assert cut("a" * 50, 50) == "a" * 50


def test_values_are_json_so_that_none_and_true_differ_from_words() -> None:
    assert flatten({}) == {}
    assert flatten({"a": None, "b": True, "c": "True", "d": [], "e": {}}) == {
        "a": "null",
        "b": "true",
        "c": "True",
        "d": "[]",
        "e": "{}",
    }


def test_the_users_sentences_are_left_out_where_text_must_stay_home() -> None:
    params = {"pretrain": {"seed": 1, "mask_predictions": {"sentences": ["my [MASK]"], "every_steps": 5}}}
    assert flatten(without_text(params)) == {"pretrain.seed": "1", "pretrain.mask_predictions.every_steps": "5"}
    assert "pretrain.mask_predictions.sentences" in flatten(params)


def test_artifacts_lie_beside_the_database_and_never_in_the_current_folder(
    config: TrackingConfig, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (folder / "runs").mkdir()
    shutil.copy(config.uri.removeprefix("sqlite:///"), "runs/mlflow.db")  # made already, which is slow
    content = record(dataclasses.replace(config, uri="sqlite:///runs/mlflow.db"))
    content.pipeline.config = {"a": 1}
    opened(folder, content)
    assert send(folder)
    assert {path.name for path in folder.iterdir()} == {"runs", "record.json", "status.json", ".sending"}
    assert list((folder / "runs/mlartifacts").rglob("config.yaml"))


@pytest.mark.usefixtures("no_locks")
def test_a_local_database_is_opened_on_a_file_system_without_locks(tmp_path: Path) -> None:
    with _only_one(f"sqlite:///{tmp_path}/folder/mlflow.db"):
        assert (tmp_path / "folder").is_dir()
