"""What MLflow shows of a run: name, note, source, charted figures; and the five figures of a stage that DVC shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tiny
from bertline.config import PipelineConfig, pipeline_config
from bertline.evaluation.facts import RESULT_FORMAT
from bertline.foundation.validation import to_mapping
from bertline.run.presentation import add_result, stage_page, write_headline
from bertline.run.stage import StageRun, opened_runs
from bertline.stages.evaluate import pipeline_page
from bertline.stages.registry import stage_named
from bertline.tracking.tracked_runs import NAME_TAG, NOTE_TAG

SENTENCE = "On reviews the encoder wins."


@pytest.fixture
def config(composed: Callable[..., dict[str, Any]]) -> PipelineConfig:
    return pipeline_config(composed())


def sweep_folder(folder: Path, **changes: Any) -> Path:
    encoder = {"title": "pretrained | encoder", "test_mean": 0.8123, "test_std": 0.01, "seeds": [{}, {}]}
    result = {
        "format_version": RESULT_FORMAT,
        "metric": "macro_f1",
        "arms": {"encoder": encoder, "random_weights": None},
        "baselines": {"word_ngrams": {"title": "word n-grams", "test": 0.85}},
        "conclusion": {"sentence": SENTENCE, "opponent": "word_ngrams"},
        "encoders": {"sentence": "", "tables": []},
        **changes,
    }
    folder.mkdir(exist_ok=True)
    (folder / "result.json").write_text(json.dumps(result))
    return folder


def test_runs_of_a_pipeline_have_one_key_and_a_stage_its_own(config: PipelineConfig, tmp_path: Path) -> None:
    made_of = {"sections": {"model": {"hidden_size": 8}}, "inputs": {"examples": "5ha"}}
    mapping, given = to_mapping(config), {"task_name": None, "inputs": {"examples": tmp_path}, "opened_s": 0.0}
    runs = [
        StageRun(config=config, stage=stage_named(name), made_of={**made_of, "code": name}, **given)
        for name in ("corpus", "pretrain")
    ]
    corpus, pretrain = (opened_runs(run, mapping, enabled=True) for run in runs)
    assert corpus.pipeline.key == pretrain.pipeline.key and corpus.stage.key != pretrain.stage.key
    assert pretrain.pipeline.name == "docs_tiny" and pretrain.pipeline.config == mapping
    assert pretrain.stage.params == {"model": {"hidden_size": 8}}
    tags = {"bertline.fingerprint": runs[1].fingerprint, "bertline.input_sha256.examples": "5ha"}
    assert tags.items() <= pretrain.stage.tags.items()
    assert list(pretrain.stage.inputs) == ["examples"]
    assert "health.jsonl" in {one.path for one in pretrain.stage.files}
    (tmp_path / "manifest.json").write_text("{}")
    figures = {"val/mlm_loss": 3.64, "steps": 5}
    add_result(pretrain.stage, config, stage_named("pretrain"), "pretrain", figures, tmp_path)
    assert pretrain.stage.metrics == {"val/mlm_loss": 3.64}
    assert "manifest.json" in {Path(one.path).name for one in pretrain.stage.files}
    assert pretrain.stage.tags[NAME_TAG] == "pretrain: MLM 3.64"


def test_a_sweep_is_named_by_its_score_and_its_table_has_the_best_first(config: PipelineConfig, tmp_path: Path) -> None:
    page = stage_page(config, stage_named("sweep"), "sweep@reviews", {}, sweep_folder(tmp_path))
    assert page[NAME_TAG] == "sweep@reviews: macro F1 0.812"
    assert SENTENCE in page[NOTE_TAG]
    rows = [line for line in page[NOTE_TAG].splitlines() if line.startswith("| ")][2:]
    assert rows == ["| word n-grams | 0.850 |", "| pretrained \\| encoder | 0.812 ± 0.010 over 2 seeds |"]


def test_the_pipeline_has_a_metric_for_each_task(config: PipelineConfig, tmp_path: Path) -> None:
    figures = {"val/mlm_loss": 3.6372, "reviews/encoder/macro_f1_mean": 0.8123, "unigram_entropy": 6.5}
    headline, page = pipeline_page(config, figures, {"reviews": sweep_folder(tmp_path)}, Path("report.html"), "0123abc")
    assert headline == {"val/mlm_loss": 3.6372, "reviews/macro_f1": 0.8123}
    assert page[NAME_TAG] == "docs_tiny: MLM 3.64"
    assert f"**reviews**: {SENTENCE}" in page[NOTE_TAG] and "0.850 (word n-grams)" in page[NOTE_TAG]


def test_a_fine_tuned_checkpoint_is_named_by_its_tasks(config: PipelineConfig, tmp_path: Path) -> None:
    without_opponent = {"conclusion": {"sentence": SENTENCE, "opponent": None}, "baselines": {}}
    folder = sweep_folder(tmp_path, **without_opponent)
    headline, page = pipeline_page(config, {}, {"reviews": folder}, Path("report.html"), "0123abc")
    assert headline == {"reviews/macro_f1": 0.8123}
    assert page[NAME_TAG] == "docs_tiny: reviews 0.812"


MLM_NSP = tiny.mlm_nsp()
METRICS = Path(__file__).resolve().parents[3] / "artifacts/metrics"
STAGES = sorted(path.stem for path in METRICS.glob("*.json"))


def committed(name: str) -> dict[str, float]:
    metrics: dict[str, float] = json.loads((METRICS / f"{name}.json").read_text())
    return metrics


@pytest.mark.parametrize("name", STAGES)
def test_every_stage_has_figures_under_the_shared_names_only(name: str) -> None:
    figures = stage_named(name.partition("@")[0]).headline(committed(name), MLM_NSP)
    assert set(figures) <= {"score", "baseline", "loss", "rows"} and figures


def test_a_sweep_has_its_test_score_and_that_of_the_strongest_simple_opponent() -> None:
    metrics = committed("sweep@docs_search")
    figures = stage_named("sweep").headline(metrics, MLM_NSP)
    assert figures["score"] == metrics["test/ndcg@10_mean"]
    assert figures["baseline"] == pytest.approx(metrics["bm25/test/ndcg@10"], abs=1e-12)


def test_a_result_that_is_taken_over_keeps_the_time_of_the_work(tmp_path: Path) -> None:
    kept, shown = tmp_path / "run/headline.json", tmp_path / "headline/corpus.json"
    for seconds in (40.0, 0.3):
        write_headline(shown, stage_named("corpus"), {"train/documents": 7}, MLM_NSP, seconds=seconds, kept=kept)
        assert json.loads(shown.read_text()) == {"rows": 7, "seconds": 40.0}
