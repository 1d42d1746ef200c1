"""Access to a store: its formats and limits, and where its files lie."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from bertline.tracking.config import TrackingConfig
from bertline.tracking.store import flatten
from tracking_inputs import opened, record, send


def test_values_are_json_so_that_none_and_true_differ_from_words() -> None:
    assert flatten({}) == {}
    plain = flatten({"a": None, "b": True, "c": "True", "d": [], "e": {}})
    assert plain == {"a": "null", "b": "true", "c": "True", "d": "[]", "e": "{}"}


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
