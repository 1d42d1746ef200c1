"""A small finished pipeline, made up: real formats, invented figures."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

import tiny
from bertline.encoders.loading import save_model
from bertline.evaluation.facts import PROVENANCE_NAME, PipelineFolders
from bertline.foundation.files import write_json
from bertline.foundation.manifests import write_manifest
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.initialization import initialize
from bertline.tokenization.storage import save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import Vocabulary
from corpora import write_corpus
from evaluation_inputs import HOSTILE, KINDS, WORDS, write_sweep, write_task

OBJECTIVE = {"kind": "mlm_nsp", "nsp_weight": 1.0}
_PROVENANCE = {
    "ended": "2026-11-23 18:20 UTC",
    "commit": "0123456789abcdef+changes",
    "fingerprint": "1ed20c966ddb",
    "machine": "2 CPU cores (Some CPU)",
    "versions": {"python": "3.12.1", "torch": "2.13.0", "scipy": "1.17"},
}
_MODEL = tiny.model_config(
    hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, max_position_embeddings=32,
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.5,
)  # fmt: skip


def make_pipeline(root: Path, *, tasks: tuple[str, ...] = ("library", "match"), full: bool = True) -> PipelineFolders:
    """Write a pipeline's artifacts under `root`; not `full` leaves out everything that a pipeline need not have."""
    stages = {name: root / name for name in ("corpus", "tokenizer", "examples", "pretrain")}
    pipeline = PipelineFolders(
        **stages,
        tasks={name: root / "tasks" / name for name in tasks},
        sweeps={name: root / "sweep" / name for name in tasks},
        params={
            "model": {"num_hidden_layers": 1, "hidden_size": 8},
            "evaluate": {"preset": "docs_long"},
            "examples": {"seed": 3},
            "sweep": {"seed": 0},
            "pretrain": {"seed": 7, "start_from": None, "mask_predictions": {"sentences": [f"A [MASK] {HOSTILE}"]}},
            "tasks": {name: {"max_length": 32, "multi_label": name == "topics"} for name in tasks},
        },
    )
    _write_corpus(pipeline.corpus)
    tokenizer = _write_tokenizer(pipeline.tokenizer)
    examples = {"lengths": {"64": {"unigram_entropy": 6.2}}, "dupe_factor": 1, "random_next_prob": 0.5}
    _manifest(pipeline.examples, "examples", {**examples, "vocab_size": tokenizer.vocab_size})
    _write_pretrain(pipeline.pretrain, tokenizer, full=full)
    for name in tasks:
        write_task(pipeline.tasks[name], name)
        write_sweep(pipeline.sweeps[name], name, full=full)
        commit = "ffff" if name == "match" else _PROVENANCE["commit"]
        own = {"stage": f"sweep@{name}", "ended": "2026-11-23 18:40 UTC", "commit": commit}
        own["versions"] = {"python": "3.12.1", "torch": "2.14.0", "optuna": "5.0.0"}
        write_json(pipeline.sweeps[name] / PROVENANCE_NAME, {**_PROVENANCE, **own})
    return pipeline


@pytest.fixture
def pipeline(tmp_path: Path) -> PipelineFolders:
    return make_pipeline(tmp_path / "artifacts")


@pytest.fixture(scope="module")
def kept_pipeline(tmp_path_factory: pytest.TempPathFactory) -> PipelineFolders:
    """The same, for tests that change nothing of it."""
    return make_pipeline(tmp_path_factory.mktemp("kept"))


@pytest.fixture
def whole_pipeline(tmp_path: Path) -> PipelineFolders:
    """A task of every kind."""
    return make_pipeline(tmp_path / "artifacts", tasks=tuple(KINDS))


@pytest.fixture
def bare_pipeline(tmp_path: Path) -> PipelineFolders:
    """No tasks, no curves, no mask predictions, nothing dropped."""
    return make_pipeline(tmp_path / "artifacts", tasks=(), full=False)


def _write_corpus(folder: Path) -> None:
    documents = [(*(f"The kernel of frame {n} is a series." for n in range(5)), HOSTILE)] * 3
    counts = {"documents": 3, "sentences": 18, "words": 120, "characters": 600}
    content: dict[str, Any] = {"source": "python_docs", "counts": {"train": counts, "validation": counts}}
    dropped = {"documents/too_short": 4, "paragraphs/code": 12_345, "paragraphs/table": 3}
    write_corpus(folder, documents, documents, **content, dropped=dropped)


def _write_tokenizer(folder: Path) -> Tokenizer:
    letters = [chr(code) for code in range(33, 127) if not chr(code).isupper()]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{a}" for a in letters if a.isalpha())]
    tokenizer = Tokenizer(Vocabulary(tokens=tuple(dict.fromkeys([*words, *WORDS])), lowercase=True))
    folder.mkdir(parents=True)
    save_tokenizer(tokenizer, folder)
    sample = {"embeddings": "em ##bed ##dings"}
    quality = {"tokens_per_word": 1.3, "unknown_rate": 0.001, "whole_word_rate": 0.8, "sample": sample}
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
        "val/mlm_loss": 4.1, "val/mlm_accuracy": 0.334, "val/nsp_accuracy": 0.79, "unigram_entropy": 6.2,
        "perf/tokens_per_s": 51_234.5, "perf/data_wait_fraction": 0.004, "num_parameters": 1_400_000,
        "train_time_s": 270.0, "steps": 3300,
    }  # fmt: skip
    _manifest(folder, "pretrain", {"metrics": metrics, "training": {"objective": OBJECTIVE}})
    write_json(folder / PROVENANCE_NAME, {**_PROVENANCE, "stage": "pretrain"})
    if full:
        (folder / "metrics.jsonl").write_text("".join(_metric_lines()))
        (folder / "mask_predictions.jsonl").write_text("".join(_mask_prediction_lines()))


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


def _mask_prediction_lines() -> list[str]:
    lines = []
    for step in range(0, 3301, 300):
        for sentence in ("Returns a new [MASK] with the same shape.", f"A [MASK] {HOSTILE}"):
            sure = step / 4000
            guesses = [["array", sure], ["tensor", (1 - sure) / 3], ["##s", 0.02], [HOSTILE[:8], 0.01], ["of", 0.005]]
            lines.append(json.dumps({"step": step, "sentence": sentence, "guesses": guesses}) + "\n")
    return lines


def _manifest(folder: Path, kind: str, content: dict[str, Any]) -> None:
    write_manifest(folder, kind=kind, format_version=1, content=content)
