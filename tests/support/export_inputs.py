"""What tests of the export stage are given: its configuration, and the result of a sweep."""

from __future__ import annotations

from typing import Any

from bertline.export.config import ExportConfig

EXPORT = ExportConfig(
    model_name="tiny-docs",
    license="apache-2.0",
    language="en",
    register=False,
    alias="current",
    champion_alias="champion",
    logits_tolerance=1e-4,
    onnx=False,  # a graph takes seconds; test_kinds.py makes them
    onnx_tolerance=1e-4,
    int8=False,
    int8_min_agreement=0.9,
    measure_latency=False,
)


def result(**changes: Any) -> dict[str, Any]:
    """The content of a sweep's result.json."""

    def arm(title: str, test: float, num_degenerate: int = 0) -> dict[str, Any]:
        return {
            "title": title,
            "best_params": {"learning_rate": 3e-4, "batch_size": 32},
            "trials": [{"number": number, "state": "COMPLETE"} for number in range(6)] + [{"state": "FAIL"}],
            "seeds": [{"seed": seed, "test": test} for seed in range(5)],
            "dev_mean": test + 0.01,
            "dev_std": 0.011,
            "test_mean": test,
            "test_std": 0.012,
            "test_interval": [test - 0.02, test + 0.02],
            "scores": {"test": {"accuracy": {"mean": test, "std": 0.012}, "macro_f1": {"mean": 0.611, "std": 0.013}}},
            "num_degenerate": num_degenerate,
        }

    def baseline(title: str, dev: float, test: float) -> dict[str, Any]:
        return {"title": title, "dev": dev, "test": test, "test_interval": [test - 0.01, test + 0.01], "settings": {}}

    def comparison(difference: float, interval: list[float], p_value: float, verdict: str) -> dict[str, Any]:
        return {
            "difference": difference,
            "interval": interval,
            "p_value": p_value,
            "smallest_visible": 0.03,
            "verdict": verdict,
        }

    return {
        "format_version": 4,
        "task": "docs_match",
        "task_kind": "classification",
        "metric": "accuracy",
        "labels": ["no match", "match"],
        "rows": {"train": 8000, "dev": 900, "test": 1800},
        "test_splits": ["test"],
        "start": "pipeline",
        "arms": {
            "encoder": arm("this encoder, fine-tuned", 0.621),
            "random_weights": arm("the same from random weights", 0.532, num_degenerate=2),
        },
        "baselines": {
            "majority": baseline("the most frequent class", 0.5, 0.501),
            "word_ngrams": baseline("TF-IDF and logistic regression", 0.55, 0.563),
        },
        "comparisons": {
            "random_weights": comparison(0.089, [0.05, 0.12], 0.001, "better"),
            "word_ngrams": comparison(0.058, [-0.01, 0.1], 0.09, "not shown"),
        },
        "comparison": comparison(0.089, [0.05, 0.12], 0.001, "better"),
        "conclusion": {
            "opponent": "word_ngrams",
            "title": "TF-IDF and logistic regression",
            "encoder": comparison(0.058, [-0.01, 0.1], 0.09, "not shown"),
            "sentence": "On docs_match it cannot be told whether the encoder wins: accuracy 0.621 against 0.563.",
        },
        "label_efficiency": [],
        "data_hash": "d" * 64,
        **changes,
    }
