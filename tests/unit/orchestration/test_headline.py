"""The five figures of a stage that DVC shows, made from the committed figures of the default run."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import tiny
from bertline.orchestration.run_pages import NAMES, headline, write_headline
from bertline.pretraining.objectives import mlm
from bertline.pretraining.objectives.base import Objective
from bertline.pretraining.objectives.mlm import Mlm

MLM_NSP = tiny.mlm_nsp()
METRICS = Path(__file__).resolve().parents[3] / "artifacts/metrics"
STAGES = sorted(path.stem for path in METRICS.glob("*.json"))


class _Other(Mlm):
    """An objective with other names."""

    judged_by = "z_loss"
    showing = dataclasses.replace(
        mlm.SHOWING,
        score="z_accuracy",
        scores=(dataclasses.replace(mlm.LOSS_SCORE, metric="z_loss", figure="z_chance"), mlm.ACCURACY_SCORE),
    )


def committed(name: str) -> dict[str, float]:
    metrics: dict[str, float] = json.loads((METRICS / f"{name}.json").read_text())
    return metrics


@pytest.mark.parametrize("name", STAGES)
def test_every_stage_has_figures_under_the_shared_names_only(name: str) -> None:
    figures = headline(name.partition("@")[0], committed(name), MLM_NSP, seconds=1.25)
    assert set(figures) <= set(NAMES) and len(figures) >= 2
    assert figures["seconds"] == 1.2


def test_a_sweep_has_its_test_score_and_that_of_the_strongest_simple_opponent() -> None:
    metrics = committed("sweep@docs_search")
    figures = headline("sweep", metrics, MLM_NSP, seconds=1)
    assert figures["score"] == metrics["test/ndcg@10_mean"]
    assert figures["baseline"] == pytest.approx(metrics["bm25/test/ndcg@10"], abs=1e-12)


@pytest.mark.parametrize("objective", [tiny.mlm_nsp(), tiny.mlm()], ids=["mlm_nsp", "mlm"])
def test_pretraining_has_accuracy_loss_and_the_entropy_that_the_loss_is_compared_with(objective: Objective) -> None:
    metrics = {"val/mlm_accuracy": 0.4, "val/mlm_loss": 3.6, "unigram_entropy": 6.5, "steps": 10}
    figures = headline("pretrain", metrics, objective, seconds=1)
    assert figures == {"score": 0.4, "baseline": 6.5, "loss": 3.6, "seconds": 1}
    of_a_checkpoint = {"num_parameters": 5}
    assert headline("pretrain", of_a_checkpoint, objective, seconds=1) == {"seconds": 1}


def test_the_objective_names_loss_score_and_baseline() -> None:
    found = {"val/z_loss": 0.1, "val/z_accuracy": 0.2, "z_chance": 0.3, "val/mlm_loss": 3.6, "unigram_entropy": 6.5}
    figures = headline("pretrain", found, _Other(kind="mlm"), seconds=1)
    assert figures == {"score": 0.2, "baseline": 0.3, "loss": 0.1, "seconds": 1}
    assert headline("evaluate", found, _Other(kind="mlm"), seconds=1) == {"loss": 0.1, "seconds": 1}


def test_evaluate_has_the_mean_score_of_the_tasks() -> None:
    metrics = {"a/encoder/accuracy_mean": 0.5, "b/encoder/entity_f1_mean": 0.7, "a/random_weights/accuracy_mean": 0.1}
    assert headline("evaluate", metrics, MLM_NSP, seconds=1)["score"] == pytest.approx(0.6)


def test_a_result_that_is_taken_over_keeps_the_time_of_the_work(tmp_path: Path) -> None:
    kept, shown = tmp_path / "run/headline.json", tmp_path / "headline/corpus.json"
    for seconds in (40.0, 0.3):
        write_headline(shown, "corpus", {"train/documents": 7}, MLM_NSP, seconds=seconds, kept=kept)
        assert json.loads(shown.read_text()) == {"rows": 7, "seconds": 40.0}
