"""The champion: a task's best version so far, on the same data, in a real store."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlflow import MlflowClient

from bertline.foundation.verdicts import Measured
from bertline.tracking import registry
from bertline.tracking.config import TrackingConfig
from bertline.tracking.registry import Registration, Standing, challenged
from bertline.tracking.tracked_runs import write_tracked_runs
from tracking_inputs import record, serving

ROWS = np.linspace(-0.4, 0.4, 40)


def standing(score: float, *, num_seeds: int = 5, data_hash: str = "d1", metric: str = "accuracy") -> Standing:
    """The standing of a version whose seeds are 0.002 apart and agree on which rows are hard."""
    scores = score + 0.002 * (np.arange(num_seeds) - (num_seeds - 1) / 2)
    dev = Measured(scores=scores, blocks=scores[:, None] + ROWS, repeatable=False)
    return Standing(
        alias="champion", data_hash=data_hash, metric=metric, dev=dev, test_score=score - 0.01, test_std=0.01
    )


FIRST = standing(0.80)


def register(config: TrackingConfig, folder: Path, standing: Standing, *, content: str, card: str = "") -> str | None:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(content)
    (folder / "README.md").write_text(card)
    run = folder.with_name("run")
    write_tracked_runs(run, record(config))
    registration = Registration(alias="current", tags={"a": "b"}, serving=serving(), standing=standing)
    return registry.register(run, model_name(config), folder, registration)


def model_name(config: TrackingConfig) -> str:
    return f"model-{config.experiment_name}"


def aliases(config: TrackingConfig) -> dict[str, str]:
    found = MlflowClient(config.uri).get_registered_model(model_name(config)).aliases
    return {alias: str(version) for alias, version in found.items()}


# On dev the seeds differ by 0.002; test, which has no say, is far higher for the second.
@pytest.mark.parametrize(
    ("challenger", "champion", "said"),
    [
        (standing(0.78), "1", "2 is worse than the champion beyond noise (−0.0200 on dev, 95 % interval −0.0246"),
        (dataclasses.replace(standing(0.8005), test_score=0.99), "1", "which stays: 5 seeds are too few for a verdict"),
        (standing(0.81), "2", "beats the champion beyond noise (+0.0100 on dev"),
    ],
    ids=["worse", "within noise", "better"],
)
def test_the_title_goes_to_who_beats_the_champion_on_the_same_data(
    config, tmp_path, capsys, challenger, champion, said
) -> None:
    folder = tmp_path / "model"
    assert register(config, folder, FIRST, content="a") == "1"
    assert "version 1 is the first champion" in capsys.readouterr().out
    assert register(config, folder, challenger, content="b") == "2"
    assert aliases(config) == {"current": "2", "champion": champion}
    assert said in capsys.readouterr().out


def test_on_other_data_the_title_stays_until_somebody_moves_it(
    config: TrackingConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    register(config, folder, FIRST, content="a")
    other_data = standing(0.99, data_hash="d2")
    assert register(config, folder, other_data, content="b") == "2"
    assert aliases(config) == {"current": "2", "champion": "1"}
    assert "To move it by hand" in capsys.readouterr().out
    client = MlflowClient(config.uri)
    tags = client.get_model_version(model_name(config), "2").tags
    shown = {"data_hash": "d2", "metric": "accuracy", "dev_score": "0.99", "test_score": "0.98", "a": "b"}
    assert shown.items() <= tags.items()

    client.delete_registered_model_alias(model_name(config), "champion")
    assert register(config, folder, other_data, content="b") == "2"
    assert aliases(config) == {"current": "2", "champion": "2"}


def test_the_same_model_with_another_card_is_the_same_version(
    config: TrackingConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    versions = [register(config, folder, FIRST, content="a", card=card) for card in ("12 ms", "13 ms")]
    assert versions == ["1", "1"]
    assert aliases(config) == {"current": "1", "champion": "1"}
    assert "is the champion already" in capsys.readouterr().out
    register(config, folder, standing(0.9), content="b")
    assert register(config, folder, FIRST, content="a") == "1"  # which has to beat the champion again
    assert aliases(config) == {"current": "1", "champion": "2"}


KNOWN = FIRST.to_json()
OTHER_ROWS = Measured(scores=np.ones(2), blocks=np.ones((2, 7)), repeatable=False)


@pytest.mark.parametrize(
    ("challenger", "champion", "why"),
    [
        (standing(0.80), KNOWN, "the champion, which stays"),
        (standing(math.nan), KNOWN, ""),
        (standing(0.99, num_seeds=1), KNOWN, "one seed"),
        (standing(0.99), standing(0.80, num_seeds=1).to_json(), "one seed"),
        (standing(1.0), {}, "no scores of the champion on dev are known"),
        (standing(1.0), KNOWN | {"data_hash": "d2"}, "other rows"),
        (standing(1.0), KNOWN | {"metric": "macro_f1"}, "scored by macro_f1, this version by accuracy"),
        (standing(1.0), KNOWN | {"dev": OTHER_ROWS.to_json()}, "another way"),
    ],
)
def test_the_champion_keeps_the_title_unless_it_is_beaten(
    challenger: Standing, champion: dict[str, Any], why: str
) -> None:
    wins, reason = challenged(challenger, champion)
    assert not wins
    assert why in reason and "stays" in reason
