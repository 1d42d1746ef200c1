"""Cranfield, CISI and TrecQA as they are published, through the files of conf/task, and BM25's scores on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bertline.finetuning.task_kind import task_kind
from bertline.foundation.validation import validate
from bertline.kinds.reranking.config import RerankingTaskConfig
from bertline.kinds.reranking.model import Reranking
from bertline.kinds.retrieval.baselines import found_by
from bertline.kinds.retrieval.config import RetrievalTaskConfig
from bertline.sweep.baselines.base import baselines_of
from bertline.tasks.build import build_task
from bertline.tasks.stored_rows import read_task_manifest
from shipped_tasks import shipped_task

ROOT = Path(__file__).resolve().parents[4]
DATA = ROOT.parent / "shared" / "data" / "tasks"

pytestmark = [
    pytest.mark.shared_data,
    pytest.mark.skipif(not (DATA / "cranfield").is_dir(), reason="the real collections are not in ../shared"),
]


def plain(kind, rows):
    return kind.first_stage(rows) if isinstance(kind, Reranking) else found_by(kind.bm25, rows)


@pytest.fixture
def baseline(tmp_path, python_docs):
    """The manifest of a shipped task and the test scores of BM25 with its usual parameters; on dev tuned ones win."""

    def make(name, config_class, **changes):
        mapping = shipped_task(name)
        mapping["source"]["path"] = str(DATA / name)
        config = validate(config_class, {**mapping, **changes}, where=name)
        build_task(name, config, python_docs, tmp_path / name)
        kind = task_kind(config, [])
        train, dev, test = (kind.read(tmp_path / name, split) for split in ("train", "dev", "test"))
        scores = kind.scores(kind.statistics(test, plain(kind, test), {}))
        bm25 = next(one for one in baselines_of(kind, train, dev, {"test": test}) if one.name == "bm25")
        tuned = kind.scores(kind.statistics(dev, bm25.predictions["dev"], {}))
        assert tuned[config.metric] >= kind.scores(kind.statistics(dev, plain(kind, dev), {}))[config.metric]
        return read_task_manifest(tmp_path / name), scores

    return make


ALL_FOR_THE_TEST = {"dev_fraction": 0.0, "test_fraction": 1.0, "fine_tuning": {"num_epochs": 0}}


def test_cranfields_judgements_name_queries_by_position(baseline):
    manifest, scores = baseline("cranfield", RetrievalTaskConfig, **ALL_FOR_THE_TEST)
    assert manifest["counts"] == {"train": 0, "dev": 225, "test": 225}
    assert manifest["dropped"] == {"empty_document": 2}
    # By <num> instead of position it would be 0.02.
    assert scores["ndcg@10"] == pytest.approx(0.350, abs=0.003)


def test_cisi_has_76_judged_queries(baseline):
    manifest, scores = baseline("cisi", RetrievalTaskConfig, **ALL_FOR_THE_TEST)
    assert manifest["counts"]["test"] == 76
    assert manifest["dropped"] == {"query_without_judgements": 36}
    assert scores["ndcg@10"] == pytest.approx(0.344, abs=0.003)
    assert scores["map"] == pytest.approx(0.186, abs=0.006)


def test_trecqa_without_questions_that_any_order_answers_is_the_clean_set_of_the_literature(baseline):
    manifest, scores = baseline("trecqa", RerankingTaskConfig)
    always_right = manifest["questions_with_right_answers_only"]
    assert [manifest["counts"][split] - always_right[split] for split in ("dev", "test")] == [65, 68]
    assert 0.5 < scores["map"] < 0.8


@pytest.mark.parametrize("name", ["cranfield", "cisi"])
def test_the_splits_of_the_shipped_files_share_no_query(baseline, name):
    manifest, scores = baseline(name, RetrievalTaskConfig)
    counts = manifest["counts"]
    assert sum(counts.values()) == {"cranfield": 225, "cisi": 76}[name]
    assert min(counts.values()) >= 8
    assert all(np.isfinite(value) for value in scores.values())
