"""The end of `make repro`."""

from __future__ import annotations

from pathlib import Path

from bertline.cli.repro_end import finished_pipeline
from bertline.foundation.files import write_json


def test_a_finished_pipeline_ends_with_a_verdict_on_each_task_and_what_to_open(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("tasks: {library: {}, search: {}, new: {}, alone: {}}")
    encoder = {"encoder": {"test_mean": 0.3333}}
    baselines = {"bm25": {"title": "BM25", "test": 0.52}}
    conclusions = {
        "library": {"opponent": "bm25", "encoder": {"verdict": "better"}},
        "search": {
            "opponent": "bm25",
            "encoder": {"verdict": "worse", "cause": None},
            "combined": {"verdict": "not shown", "cause": "21 test rows are too few"},
        },
        "alone": {"opponent": None},
        "removed": {"opponent": None},
    }
    for task, conclusion in conclusions.items():
        result = {"task": task, "metric": "accuracy", "arms": encoder, "baselines": baselines, "conclusion": conclusion}
        write_json(tmp_path / "artifacts/sweep" / task / "result.json", result)
    lines = [*finished_pipeline(tmp_path)]
    assert lines[1:4] == [
        "  library  wins                        accuracy 0.333 against 0.520  BM25",
        "  search   loses, with BM25 not clear  accuracy 0.333 against 0.520  BM25: 21 test rows are too few",
        "  alone    no verdict                  accuracy 0.333                no simple method was tried",
    ]
    assert "artifacts/evaluate/report.html" in lines[4] and "`make try`" in lines[5] and "`make ui`" in lines[5]
