"""A small finished line, made up: real formats, invented figures."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertline.corpus.document import Document
from bertline.corpus.storage import ShardWriter
from bertline.evaluation.folders import LineFolders
from bertline.foundation.files import write_json
from bertline.foundation.manifests import write_manifest
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.config import ModelConfig
from bertline.modeling.huggingface import save_model
from bertline.modeling.initialization import initialize
from bertline.tasks.storage import Rows, write_rows
from bertline.tokenization.storage import save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import Vocabulary

HOSTILE = '<script>alert("x")</script> & <b>bold'
LABELS = ["numpy", "torch", "sympy"]
_WORDS = ["the", "kernel", "of", "a", "frame", "is", "in", "series", "model", "return", "value", "array", "given"]
_MODEL = ModelConfig(
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=32,
    type_vocab_size=2,
    hidden_act="gelu",
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.5,
    layer_norm_eps=1e-12,
)


def make_line(root: Path, *, tasks: tuple[str, ...] = ("library", "match"), full: bool = True) -> LineFolders:
    """Write a line's artifacts under `root`; not `full` leaves out everything that a line need not have."""
    line = LineFolders(
        corpus=root / "corpus",
        tokenizer=root / "tokenizer",
        examples=root / "examples",
        pretrain=root / "pretrain",
        tasks={name: root / "tasks" / name for name in tasks},
        sweeps={name: root / "sweep" / name for name in tasks},
        metrics=root / "metrics",
        params={
            "model": {"num_hidden_layers": 1, "hidden_size": 8},
            "pretrain": {"start_from": None, "film_strip": {"sentences": [f"A [MASK] {HOSTILE}"]}},
            "tasks": {name: {"max_length": 32} for name in tasks},
        },
    )
    _write_corpus(line.corpus)
    tokenizer = _write_tokenizer(line.tokenizer)
    lengths = {"64": {"unigram_entropy": 6.2}}
    _manifest(line.examples, "examples", {"lengths": lengths, "dupe_factor": 1, "vocab_size": tokenizer.vocab_size})
    _write_pretrain(line.pretrain, tokenizer, full=full)
    for name in tasks:
        _write_task(line.tasks[name], pair=name == "match")
        line.sweeps[name].mkdir(parents=True)
        write_json(line.sweeps[name] / "result.json", make_result(name, full=full))
        pq.write_table(
            pa.table({"label": ["numpy", "torch"], "predicted": ["numpy", "sympy"]}),
            line.sweeps[name] / "predictions.parquet",
        )
    write_json(line.metrics / "corpus.json", {"documents": 3})
    return line


def make_result(name: str, *, full: bool = True) -> dict[str, Any]:
    """A sweep's result.json; not `full`: one seed, no random-weights arm, no label efficiency, no errors."""
    arms = {"encoder": _arm(0.42, full), "random_weights": _arm(0.28, full) if full else None}
    efficiency = [
        {"rows": rows, "arm": arm, "test_mean": base + rows / 20_000, "test_std": 0.01, "num_seeds": 3}
        for arm, base in (("encoder", 0.35), ("random_weights", 0.2), ("tfidf_logistic_regression", 0.25))
        for rows in (200, 1000, 4000)
    ]
    error = {"text": f"The kernel {HOSTILE}", "text_pair": None, "gold": "numpy", "predicted": "torch", "score": 0.97}
    return {
        "task": name,
        "metric": "accuracy",
        "labels": LABELS,
        "num_trials": 4,
        "num_seeds": 5 if full else 1,
        "rows": {"train": 1000, "dev": 300, "test": 300},
        "arms": arms,
        "baselines": {
            "majority": {"dev": 0.1, "test": 0.09},
            "tfidf_logistic_regression": {"dev": 0.33, "test": 0.32, "best_params": {"C": 1.0}},
        },
        "comparison": {"difference": 0.14, "threshold": 0.02, "beats_random_weights": True} if full else None,
        "label_efficiency": efficiency if full else [],
        "confusion_matrix": [[20, 3, 1], [2, 25, 0], [4, 4, 30]],
        "examples": {"confident_errors": [error] if full else []},
    }


@pytest.fixture
def line(tmp_path: Path) -> LineFolders:
    return make_line(tmp_path / "artifacts")


@pytest.fixture
def bare_line(tmp_path: Path) -> LineFolders:
    """No tasks, no curves, no film strip, nothing dropped."""
    return make_line(tmp_path / "artifacts", tasks=(), full=False)


@pytest.fixture
def modest_line(tmp_path: Path) -> LineFolders:
    """One task without a random-weights arm, label efficiency or spread."""
    return make_line(tmp_path / "artifacts", tasks=("library",), full=False)


def _arm(mean: float, full: bool) -> dict[str, Any]:
    seeds = [{"seed": n, "dev": mean + n / 200, "test": mean + (n - 2) / 100} for n in range(5 if full else 1)]
    states = ("COMPLETE", "COMPLETE", "PRUNED", "FAIL")
    trials = [
        {
            "number": number,
            "state": state,
            "params": {"lr": 10.0 ** (-4 + number / 2), "epochs": 3, "batch_size": 16 * (1 + number % 2)},
            "dev": None if state == "FAIL" else mean - number / 50,
        }
        for number, state in enumerate(states)
    ]
    return {
        "best_params": {"lr": 3e-4, "batch_size": 16},
        "best_dev": mean,
        "trials": trials,
        "seeds": seeds,
        "dev_mean": mean,
        "dev_std": 0.01 if full else 0.0,
        "test_mean": mean,
        "test_std": 0.0158 if full else 0.0,
    }


def _write_corpus(folder: Path) -> None:
    folder.mkdir(parents=True)
    shards = {}
    for split in ("train", "validation"):
        writer = ShardWriter(folder, split, 100)
        for number in range(3):
            sentences = (*(f"The kernel of frame {n} is a series." for n in range(5)), HOSTILE)
            writer.write(Document(f"{split}.{number}", "group", sentences))
        shards[split] = writer.close()
    counts = {"documents": 3, "sentences": 18, "words": 120, "characters": 600}
    content = {
        "source": "python_docs",
        "counts": {"train": counts, "validation": counts},
        "shards": shards,
        "dropped": {"documents/too_short": 4, "paragraphs/code": 12_345, "paragraphs/table": 3},
    }
    _manifest(folder, "corpus", content)


def _write_tokenizer(folder: Path) -> Tokenizer:
    letters = [chr(code) for code in range(33, 127) if not chr(code).isupper()]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{a}" for a in letters if a.isalpha())]
    tokenizer = Tokenizer(Vocabulary(pieces=tuple(dict.fromkeys([*words, *_WORDS])), lowercase=True))
    folder.mkdir(parents=True)
    save_tokenizer(tokenizer, folder)
    sample = {"embeddings": "em ##bed ##dings"}
    quality = {"pieces_per_word": 1.3, "unknown_rate": 0.001, "whole_word_rate": 0.8, "sample": sample}
    _manifest(folder, "tokenizer", {"vocab_size": tokenizer.vocab_size, "lowercase": True, "quality": quality})
    return tokenizer


def _write_pretrain(folder: Path, tokenizer: Tokenizer, *, full: bool) -> None:
    model = BertForPreTraining(
        _MODEL, vocab_size=tokenizer.vocab_size, pad_token_id=tokenizer.pad_id, attention="plain"
    )
    initialize(model, _MODEL, seed=1)
    folder.mkdir(parents=True)
    save_model(model, folder)
    save_tokenizer(tokenizer, folder)
    metrics = {
        "val/mlm_loss": 4.1,
        "val/mlm_accuracy": 0.334,
        "val/nsp_accuracy": 0.79,
        "unigram_entropy": 6.2,
        "perf/tokens_per_s": 51_234.5,
        "perf/data_wait_fraction": 0.004,
        "num_parameters": 1_400_000,
        "train_time_s": 270.0,
        "steps": 3300,
    }
    _manifest(folder, "pretrain", {"metrics": metrics})
    if full:
        (folder / "metrics.jsonl").write_text("".join(_metric_lines()))
        (folder / "film_strip.jsonl").write_text("".join(_film_lines()))


def _metric_lines() -> list[str]:
    lines = []
    for step in range(50, 3301, 50):
        loss = 4.1 + 4 * math.exp(-step / 600)
        metrics = {"train/mlm_loss": loss + 0.2 * math.sin(step), "train/nsp_accuracy": 0.6}
        if step % 300 == 0:
            accuracy = 0.34 * (1 - math.exp(-step / 900))
            metrics |= {"val/mlm_loss": loss, "val/mlm_accuracy": accuracy, "val/nsp_accuracy": 0.5 + accuracy * 0.8}
        lines.append(json.dumps({"step": step, "time_s": 1.0, "metrics": metrics}) + "\n")
    return lines


def _film_lines() -> list[str]:
    lines = []
    for step in range(0, 3301, 300):
        for sentence in ("Returns a new [MASK] with the same shape.", f"A [MASK] {HOSTILE}"):
            sure = step / 4000
            guesses = [["array", sure], ["tensor", (1 - sure) / 3], ["##s", 0.02], [HOSTILE[:8], 0.01], ["of", 0.005]]
            lines.append(json.dumps({"step": step, "sentence": sentence, "guesses": guesses}) + "\n")
    return lines


def _write_task(folder: Path, *, pair: bool) -> None:
    folder.mkdir(parents=True)
    texts = [" ".join(_WORDS[(row + n) % len(_WORDS)] for n in range(6)) for row in range(12)]
    labels = np.arange(12, dtype=np.int64) % 3
    rows = Rows([str(n) for n in range(12)], texts, texts[::-1] if pair else None, labels)
    for split in ("train", "dev", "test"):
        write_rows(folder, split, rows)
    _manifest(folder, "task", {"labels": LABELS, "pair": pair, "metric": "accuracy"})


def _manifest(folder: Path, kind: str, content: dict[str, Any]) -> None:
    write_manifest(folder, kind=kind, format_version=1, content=content)
