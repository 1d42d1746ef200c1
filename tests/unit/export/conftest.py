"""A finished pipeline in small: an encoder, a sweep with its winner, and the facts around them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tiny
from bertline.demo.config import DocsMatchSourceConfig
from bertline.finetuning.task_file import write_task_file
from bertline.foundation.manifests import write_manifest
from bertline.kinds.registry import task_kind
from bertline.tokenization.storage import save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from export_inputs import result
from finetuning_inputs import task

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,;:!?()'[]"
WORDS = (*LETTERS, *(f"##{letter}" for letter in LETTERS if letter.isalnum()), "the", "cafe", "mask")
SIZES = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 96}
SIZES |= {"initializer_range": 0.2}


@dataclass(frozen=True)
class SmallPipeline:
    """The arguments of `build_export`."""

    pretrain: Path
    sweeps: dict[str, Path]
    facts: dict[str, Any]


@pytest.fixture
def pipeline(tmp_path: Path) -> SmallPipeline:
    pretrain = tiny.write_encoder(tmp_path / "pretrain", heads=True, seed=1, words=WORDS, **SIZES)
    metrics = {"val/mlm_loss": 4.13, "val/mlm_accuracy": 0.334, "val/nsp_accuracy": 0.79, "unigram_entropy": 6.22}
    training = {"resolved": {"precision": "bf16"}, "objective": {"kind": "mlm_nsp", "nsp_weight": 1.0}}
    write_manifest(pretrain, kind="pretrain", format_version=1, content={"metrics": metrics, "training": training})

    sweep = tmp_path / "sweep" / "docs_match"
    tiny.write_classifier(sweep / "best", ("no match", "match"), seed=2, words=WORDS, **SIZES)
    for folder in (pretrain, sweep / "best"):
        save_tokenizer(Tokenizer.load(folder), folder)
    source = DocsMatchSourceConfig(kind="docs_match", min_words=4, num_dev_rows=2, num_test_rows=2)
    config = task(source=source, **tiny.task_fields(max_length=48), window_overlap=8)
    write_task_file(sweep / "best", task_kind(config, ["no match", "match"]), {})
    (sweep / "result.json").write_text(json.dumps(result()))
    return SmallPipeline(pretrain, {"docs_match": sweep}, facts())


def facts() -> dict[str, Any]:
    pretrain = {
        "start_from": None, "max_steps": None, "mask_predictions": {"sentences": ["the [MASK]"]},
        "phases": [{"steps": 3300, "max_length": 64, "global_batch_size": 64}],
    }  # fmt: skip
    corpus = {
        "source": "python_docs", "dropped": {"paragraphs/too_few_words": 77}, "packages": {"numpy": "2.0"},
        "counts": {"train": {"documents": 12, "sentences": 340, "words": 5600, "characters": 7890}},
    }  # fmt: skip
    tasks = {"docs_match": {"max_length": 48, "source": {"kind": "docs_match"}}}
    params = {"model": {"hidden_size": 16}, "optimizer": {"kind": "adamw", "lr": 3e-3}}
    return {
        "params": {**params, "pretrain": pretrain, "tasks": tasks},
        "commit": "0123abc",
        "metrics": {"pretrain": {"val/mlm_loss": 4.5, "unigram_entropy": 6.0}},  # of the stage
        "manifests": {"examples": {"random_next_prob": 0.5}, "corpus": corpus},
    }
