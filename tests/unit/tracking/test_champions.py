"""The champion: a task's best version so far, on the same data, in a real store."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
from mlflow import MlflowClient

from bertline.tracking.champions import Standing, challenged
from bertline.tracking.config import TrackingConfig
from bertline.tracking.tracker import open_tracker

FIRST = Standing(alias="champion", data_hash="d1", metric="accuracy", score=0.80, std=0.01)


def register(config: TrackingConfig, folder: Path, standing: Standing, *, content: str, card: str = "") -> str | None:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(content)
    (folder / "README.md").write_text(card)
    with open_tracker(config, line_key="one", tags={}, params={}) as tracker:
        return tracker.register(model_name(config), folder, alias="current", tags={"a": "b"}, standing=standing)


def model_name(config: TrackingConfig) -> str:
    return f"model-{config.experiment_name}"


def aliases(config: TrackingConfig) -> dict[str, str]:
    found = MlflowClient(config.uri).get_registered_model(model_name(config)).aliases
    return {alias: str(version) for alias, version in found.items()}


def test_the_title_goes_to_who_beats_the_champion_on_the_same_data(
    config: TrackingConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    assert register(config, folder, FIRST, content="a") == "1"
    assert "version 1 is the first champion" in capsys.readouterr().out

    worse = dataclasses.replace(FIRST, score=0.78)
    assert register(config, folder, worse, content="b") == "2"
    assert aliases(config) == {"current": "2", "champion": "1"}
    assert "version 2 stays behind the champion by 0.0200" in capsys.readouterr().out

    better = dataclasses.replace(FIRST, score=0.81)
    assert register(config, folder, better, content="c") == "3"
    assert aliases(config) == {"current": "3", "champion": "3"}
    assert "beats the champion by 0.0100" in capsys.readouterr().out


def test_on_other_data_the_title_stays_until_somebody_moves_it(
    config: TrackingConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    register(config, folder, FIRST, content="a")
    other_data = dataclasses.replace(FIRST, score=0.99, data_hash="d2")
    assert register(config, folder, other_data, content="b") == "2"
    assert aliases(config) == {"current": "2", "champion": "1"}
    said = capsys.readouterr().out
    assert "the task's data changed" in said
    assert "set_registered_model_alias" in said
    client = MlflowClient(config.uri)
    tags = client.get_model_version(model_name(config), "2").tags
    assert {"data_hash": "d2", "metric": "accuracy", "score": "0.99", "std": "0.01", "a": "b"}.items() <= tags.items()

    client.delete_registered_model_alias(model_name(config), "champion")
    assert register(config, folder, other_data, content="b") == "2"
    assert aliases(config) == {"current": "2", "champion": "2"}


def test_the_same_model_with_another_card_is_the_same_version_and_stays_champion(
    config: TrackingConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    versions = [register(config, folder, FIRST, content="a", card=card) for card in ("12 ms", "13 ms")]
    assert versions == ["1", "1"]
    assert aliases(config) == {"current": "1", "champion": "1"}
    assert "is the champion already" in capsys.readouterr().out


def test_an_old_version_that_comes_back_has_to_beat_the_champion_again(config: TrackingConfig, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    register(config, folder, FIRST, content="a")
    register(config, folder, dataclasses.replace(FIRST, score=0.9), content="b")
    assert register(config, folder, FIRST, content="a") == "1"
    assert aliases(config) == {"current": "1", "champion": "2"}


@pytest.mark.parametrize("score", [0.80, math.nan])
def test_the_champion_keeps_the_title_against_its_equal_and_against_nan(score: float) -> None:
    verdict = challenged(dataclasses.replace(FIRST, score=score), FIRST.tags())
    assert not verdict.wins


@pytest.mark.parametrize(
    ("tags", "why"),
    [
        ({}, "no score of the champion is known"),
        ({"data_hash": "d2"}, "other rows"),
        ({"metric": "macro_f1"}, "scored by macro_f1, this version by accuracy"),
        ({"score": "high"}, "no score of the champion is known"),
        ({"score": "nan"}, "no score of the champion is known"),
    ],
)
def test_a_champion_that_cannot_be_compared_with_keeps_the_title(tags: dict[str, str], why: str) -> None:
    verdict = challenged(dataclasses.replace(FIRST, score=1.0), {**FIRST.tags(), **tags} if tags else {})
    assert not verdict.wins
    assert why in verdict.reason
    assert "alias 'champion' stays" in verdict.reason
