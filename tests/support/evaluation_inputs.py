"""What a sweep of each kind of task leaves, made up: the rows, result.json, predictions, the best model's task.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bertline.foundation.files import write_json
from bertline.foundation.manifests import write_manifest
from bertline.tasks.stored_rows import (
    COLLECTION,
    CandidateRows,
    Documents,
    MultiLabelRows,
    NumberRows,
    QueryRows,
    QuestionRows,
    StoredRows,
    SummaryRows,
    TaggedRows,
    TextRows,
    write_rows,
)

HOSTILE = '<script>alert("x")</script> & <b>bold'
LABELS = ["numpy", "torch", "sympy"]
WORDS = ["the", "kernel", "of", "a", "frame", "is", "in", "series", "model", "return", "value", "array", "given"]
NUM_ROWS = 12
KINDS = {
    "library": "classification", "match": "classification", "topics": "classification", "alike": "regression",
    "names": "token_classification", "answers": "question_answering", "search": "retrieval", "order": "reranking",
    "sums": "summarisation",
}  # fmt: skip
"""Task to kind. `match` has pairs, `topics` several labels per row and an extra test."""
METRICS = {
    "classification": ("accuracy", "macro_f1"),
    "regression": ("spearman", "pearson"),
    "token_classification": ("entity_f1", "entity_precision", "entity_recall"),
    "question_answering": ("f1", "exact_match"),
    "retrieval": ("ndcg@10", "mrr@10", "recall@100", "map"),
    "reranking": ("map", "mrr", "ndcg@10"),
    "summarisation": ("rouge1", "rouge2", "rougeL"),
}
_REFERENCE = "/models/general-encoder"
_BASELINES: dict[str, dict[str, tuple[str, float]]] = {
    "classification": {"majority": ("most frequent label", 0.09), "tfidf": ("TF-IDF, logistic regression", 0.32)},
    "regression": {"word_overlap": ("words in common", 0.3)},
    "token_classification": {"most_frequent_tag": ("most frequent tag", 0.11)},
    "question_answering": {"first_sentence": ("first sentence", 0.12)},
    "retrieval": {"bm25": ("BM25", 0.35)},
    "reranking": {"first_stage": ("order they came in", 0.2), "bm25": ("BM25", 0.35)},
    "summarisation": {"first_sentences": ("first sentences", 0.4)},
}
_TEXTS = [" ".join(WORDS[(row + n) % len(WORDS)] for n in range(6)) for row in range(NUM_ROWS)]
_ALIKE = np.arange(NUM_ROWS) * 3 // NUM_ROWS
_OF_LABEL = [" ".join(WORDS[4 * label + (row + n) % 4] for n in range(6)) for row, label in enumerate(_ALIKE)]
"""Texts whose words tell the label."""
_IDS = [str(row) for row in range(NUM_ROWS)]


def write_task(folder: Path, name: str) -> None:
    """The task artifact."""
    folder.mkdir(parents=True)
    rows = rows_of_kind(name)
    for split in ("train", "dev", *test_splits(name)):
        write_rows(folder, split, rows)
    if KINDS[name] == "retrieval":
        write_rows(folder, COLLECTION, Documents(["d1", "d2"], ["Wings", ""], ["A study of wings.", HOSTILE]))
    content = {
        "task_kind": KINDS[name], "labels": labels_of(name), "metric": METRICS[KINDS[name]][0],
        "counts": dict.fromkeys(("train", "dev", *test_splits(name)), NUM_ROWS),
    }  # fmt: skip
    write_manifest(folder, kind="task", format_version=2, content=content)


def write_sweep(folder: Path, name: str, *, full: bool = True) -> None:
    """The sweep's artifact, as far as evaluation reads it."""
    folder.mkdir(parents=True)
    write_json(folder / "result.json", make_result(name, full=full))
    right = [row % 3 > 0 for row in range(NUM_ROWS)]
    predicted = [LABELS[row % 3] if ok else LABELS[(row + 1) % 3] for row, ok in enumerate(right)]
    gold = [LABELS[row % 3] for row in range(NUM_ROWS)]
    table = pa.table({"id": _IDS, "gold": gold, "predicted": predicted, "score": [0.9] * NUM_ROWS, "correct": right})
    for split in test_splits(name):
        pq.write_table(table, folder / ("predictions.parquet" if split == "test" else f"predictions_{split}.parquet"))
    calibration = {"answers": {"no_answer_threshold": -1.25}, "topics": {"threshold": 0.4}}.get(name, {})
    write_json(folder / "best" / "task.json", {"format_version": 1, "calibration": calibration})


def test_splits(name: str) -> list[str]:
    """The test splits of a task."""
    return ["test", "test_mismatched"] if name == "topics" else ["test"]


test_splits.__test__ = False  # type: ignore[attr-defined]  # pytest would take it for a test


def labels_of(name: str) -> list[str]:
    """The labels of a task."""
    tags = ["O", "B-person", "I-person", "B-place", "I-place"]
    return {"classification": LABELS, "token_classification": tags}.get(KINDS[name], [])


def rows_of_kind(name: str) -> StoredRows:
    """A few rows."""
    pairs, words = _TEXTS[::-1], [text.split() for text in _TEXTS]
    one = [[1]] * NUM_ROWS
    rows: Mapping[str, StoredRows] = {
        "classification": TextRows(_IDS, _OF_LABEL, pairs if name == "match" else None, _ALIKE),
        "regression": NumberRows(_IDS, _TEXTS, pairs, np.linspace(0, 5, NUM_ROWS)),
        "token_classification": TaggedRows(_IDS, _IDS, words, [["O"] * 5 + ["B-person"]] * NUM_ROWS),
        "question_answering": QuestionRows(_IDS, _IDS, pairs, _TEXTS, [["kernel"]] * NUM_ROWS, [[4]] * NUM_ROWS),
        "retrieval": QueryRows(_IDS, _TEXTS, [["d1"]] * NUM_ROWS, one),
        "reranking": CandidateRows(
            _IDS, _TEXTS, [["d1"]] * NUM_ROWS, [["a text"]] * NUM_ROWS, one, [[1.0]] * NUM_ROWS, one
        ),
        "summarisation": SummaryRows(_IDS, words, _TEXTS, [[1, 0, 0, 0, 0, 0]] * NUM_ROWS),
    }
    if name == "topics":
        return MultiLabelRows(_IDS, _TEXTS, None, np.eye(3, dtype=np.int64)[np.arange(NUM_ROWS) % 3])
    return rows[KINDS[name]]


def make_result(name: str, *, full: bool = True) -> dict[str, Any]:
    """A sweep's result.json; not `full`: one seed, no other arm, no label efficiency, no errors."""
    kind = KINDS[name]
    base = 0.42
    arms = {"encoder": _arm(name, "pretrained encoder", "pipeline", base, full=full)}
    if full:
        arms["random_weights"] = _arm(name, "the same from random weights", "random", base - 0.14, full=True)
        arms["encoder_2"] = _arm(name, _REFERENCE, _REFERENCE, base + 0.01, full=True)
        arms["random_weights"]["num_degenerate"] = 2
        if kind == "retrieval":
            combined = _arm(name, "encoder and BM25 combined", "pipeline", base + 0.05, full=True)
            arms["combined"] = {**combined, "trials": [], "candidates": [], "settings": {"k": 20, "weight": 0.25}}
    baselines = {
        key: {
            "title": title, "dev": value + 0.01, "test": value, "test_interval": [value - 0.03, value + 0.03],
            "intervals": {split: [value - 0.03, value + 0.03] for split in test_splits(name)},
            "scores": {split: dict.fromkeys(METRICS[kind], value) for split in ("dev", *test_splits(name))},
            "settings": {},
        }
        for key, (title, value) in _BASELINES[kind].items()
    }  # fmt: skip
    against = {"random_weights": (0.14, 0.0001), "encoder_2": (-0.01, 0.4)} if full else {}
    against |= {"combined": (-0.05, 0.0001)} if "combined" in arms else {}
    against |= {key: (base - value, 0.0001) for key, (_, value) in _BASELINES[kind].items()}
    comparisons = {
        key: comparison(difference, p_value) if full else {"difference": difference}
        for key, (difference, p_value) in against.items()
    }
    strongest = max(baselines, key=lambda key: baselines[key]["dev"])
    conclusion = {
        "opponent": strongest, "title": baselines[strongest]["title"], "encoder": comparisons[strongest],
        "sentence": f"On {name} the encoder is measured against {baselines[strongest]['title']}.",
    }  # fmt: skip
    tables = [[["encoder", "dev"], [["mine", "0.420"], [HOSTILE, "0.430"]]], [["encoder", "minus"], [["a", "b"]]]]
    encoders: dict[str, Any] = {"pairs": [], "sentence": "", "tables": []}
    if full:
        pair = {"first": "encoder", "second": "encoder_2", **comparisons["encoder_2"]}
        said = "Of 2 encoders, the pretrained encoder is exported."
        encoders = {"pairs": [pair], "sentence": said, "tables": tables}
    efficiency = [
        {"rows": rows, "arm": arm, "test_mean": start + rows / 20_000, "test_std": 0.01, "num_seeds": 3}
        for rows in (200, 1000, 4000)
        for arm, start in (("encoder", base - 0.07), ("random_weights", base - 0.2), ("tfidf", base - 0.15))
    ]
    return {
        "format_version": 4, "task": name, "task_kind": kind, "metric": METRICS[kind][0], "labels": labels_of(name),
        "num_trials": 4, "num_seeds": 5 if full else 1, "test_splits": test_splits(name), "start": "pipeline",
        "rows": {"train": 1000, "dev": 300, **dict.fromkeys(test_splits(name), 300)},
        "arms": arms, "baselines": baselines, "comparisons": comparisons, "conclusion": conclusion,
        "comparisons_by_split": dict.fromkeys(test_splits(name), comparisons),
        "comparison": comparisons["random_weights"] if full else None,
        "encoders": encoders,
        **({"label_curve": {"curves": {}, "sentence": "Twice the labels: +0.012."}} if full else {}),
        "label_efficiency": efficiency if full and name in ("library", "match") else [],
        "best": {"seed": 2, "dev": base, "test": base},
        **({"confusion_matrix": [[20, 3, 1], [2, 25, 0], [4, 4, 30]]} if name in ("library", "match") else {}),
        "details": _DETAILS.get(kind, {}) if name != "topics" else _TOPIC_DETAILS,
        "examples": {"confident_errors": [_ERRORS[kind]] if full else []},
        "label_sets": {
            "rows": "dev", "num_rows": 300,
            "by_coverage": {"0.9": {"coverage": 0.907, "mean_size": 1.4}} if full else {},
        },
        "doubtful_labels": {"number": 30 if full else 0, "rows": [_DOUBTFUL] if full else []},
        "data_hash": "0" * 64, "workers_matter": name == "search",
        "note": "Dev of the source is the test; tuned on a tenth of train." if name == "search" else "",
    }  # fmt: skip


_DOUBTFUL = {
    "id": "rows.csv:17", "text": HOSTILE, "text_pair": None, "gold": "numpy", "predicted": "torch", "score": 0.9,
    "score_of_gold": 0.04,
}  # fmt: skip


def comparison(difference: float, p_value: float) -> dict[str, Any]:
    """What a comparison says where the noise is known."""
    verdict = "not shown" if p_value >= 0.05 else "better" if difference > 0 else "worse"
    return {
        "difference": difference, "interval": [difference - 0.04, difference + 0.04], "p_value": p_value,
        "standard_error": 0.02, "degrees_of_freedom": 8.0, "smallest_visible": 0.07, "verdict": verdict,
    }  # fmt: skip


def _arm(name: str, title: str, start: str, mean: float, *, full: bool) -> dict[str, Any]:
    metrics, splits = METRICS[KINDS[name]], ("dev", *test_splits(name))
    seeds = [
        {
            "seed": n, "dev": mean + n / 200, "test": mean + (n - 2) / 100, "degenerate": False, "time_s": 12.0,
            "scores": {split: dict.fromkeys(metrics, mean + (n - 2) / 100) for split in splits},
        }
        for n in range(5 if full else 1)
    ]  # fmt: skip
    trials = [
        {
            "number": number, "state": state, "dev": None if state == "FAIL" else mean - number / 50, "time_s": 10.0,
            "params": {"learning_rate": 10.0 ** (-4 + number / 2), "num_epochs": 3, "batch_size": 16 << number % 2},
            "curve": [[0.5, mean - 0.1], [1.0, mean]],
        }
        for number, state in enumerate(("COMPLETE", "COMPLETE", "PRUNED", "FAIL"))
    ]  # fmt: skip
    best = {"learning_rate": 3e-4, "batch_size": 16}
    candidates = [
        {
            "params": params, "dev_mean": mean - place / 50, "dev_std": 0.01 if full else None,
            "dev": [mean - place / 50] * len(seeds), "num_diverged": 0,
        }
        for place, params in enumerate((best, {"learning_rate": 1e-4, "batch_size": 32}))
    ]  # fmt: skip
    std = 0.0158 if full else None
    return {
        "title": title, "start": start, "trials": trials, "best_params": best, "seeds": seeds,
        "candidates": candidates if full else candidates[:1], "dev_mean": mean, "dev_std": std, "test_mean": mean,
        "test_std": std, "test_interval": [mean - 0.05, mean + 0.05],
        "intervals": {split: [mean - 0.05, mean + 0.05] for split in test_splits(name)},
        "scores": {split: {metric: {"mean": mean, "std": std} for metric in metrics} for split in splits},
        "num_degenerate": 0, "num_diverged": 0, "cut_rows": dict.fromkeys(("train", *splits), 0),
        "num_parameters": 33_000, "ms_per_row": 0.4,
    }  # fmt: skip


_TOPIC_DETAILS = {"by_label": {label: {"f1": 0.4, "precision": 0.5, "recall": 0.3, "support": 9} for label in LABELS}}
_DETAILS: dict[str, dict[str, Any]] = {
    "classification": {"confusion_matrix": [[20, 3, 1], [2, 25, 0], [4, 4, 30]]},
    "token_classification": {
        "by_type": {
            "person": {"precision": 0.5, "recall": 0.4, "f1": 0.44, "support": 1200},
            "place": {"precision": 0.3, "recall": 0.6, "f1": 0.4, "support": 31},
        }
    },
    "summarisation": {"oracle": {"rouge1": 0.6, "rouge2": 0.4, "rougeL": 0.5}},
    "reranking": {"before": {"map": 0.2, "mrr": 0.25, "ndcg@10": 0.22}},
}
_LONG = "Some sentences before. " * 30
_ERRORS: dict[str, dict[str, Any]] = {
    "classification": {
        "id": "a.tsv:3", "text": f"The kernel {HOSTILE}", "text_pair": None, "gold": "numpy", "predicted": "torch",
        "score": 0.97,
    },
    "regression": {
        "id": "1", "text": "A man runs.", "text_pair": "A man sits.", "gold_number": 1.0, "predicted_number": 4.25,
        "gold": "1.000", "predicted": "4.250", "score": 0.65,
    },
    "token_classification": {
        "id": "1", "text": f"Ada Lovelace met {HOSTILE.split()[0]} in London today", "words": ["Ada", "Lovelace"],
        "gold": "B-person I-person O O O B-place O", "predicted": "B-person O O O O B-person O", "score": 0.9,
    },
    "question_answering": {
        "id": "q1", "title": "Rivers", "question": "Where does the river end?",
        "context": f"{_LONG}The river begins in the hills and ends in the northern sea. {HOSTILE} {_LONG}",
        "gold": "the northern sea", "predicted": "the hills", "score": 0.93,
    },
    "retrieval": {
        "id": "7", "query": "wings at high speed", "gold": "d1, d7", "predicted": "d2, d3", "first_document": HOSTILE,
        "right_document": "Waves on wings.", "score": 0.8,
    },
    "reranking": {"id": "7", "query": "who wrote it", "gold": "Ada did.", "predicted": "It was written.", "score": 0.9},
    "summarisation": {"id": "7", "gold": "It rained all day.", "predicted": f"It was {HOSTILE}.", "score": 0.4},
}  # fmt: skip
