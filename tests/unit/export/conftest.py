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
from bertline.kinds.classification import ClassificationTaskConfig
from bertline.kinds.registry import task_kind
from bertline.modeling.bert import BertForPreTraining, BertForSequenceClassification
from bertline.modeling.huggingface import save_model
from bertline.modeling.initialization import initialize
from bertline.tokenization.storage import save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from export_inputs import result

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,;:!?()'[]"
TOKENS = (*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS if letter.isalnum()), "the", "cafe", "mask")
CONFIG = tiny.model_config(
    hidden_size=16, num_attention_heads=2, intermediate_size=32, max_position_embeddings=96, initializer_range=0.2
)


@dataclass(frozen=True)
class SmallPipeline:
    """The arguments of `build_export`."""

    pretrain: Path
    sweeps: dict[str, Path]
    facts: dict[str, Any]


@pytest.fixture
def pipeline(tmp_path: Path) -> SmallPipeline:
    tokenizer = Tokenizer(Vocabulary(tokens=TOKENS, lowercase=True))
    pretrain = tmp_path / "pretrain"
    encoder = BertForPreTraining(CONFIG, vocab_size=len(TOKENS), pad_token_id=0)
    initialize(encoder, CONFIG, seed=1)
    save_model(encoder, pretrain)
    save_tokenizer(tokenizer, pretrain)
    metrics = {"val/mlm_loss": 4.13, "val/mlm_accuracy": 0.334, "val/nsp_accuracy": 0.79, "unigram_entropy": 6.22}
    training = {"resolved": {"precision": "bf16"}, "objective": {"kind": "mlm_nsp", "nsp_weight": 1.0}}
    write_manifest(pretrain, kind="pretrain", format_version=1, content={"metrics": metrics, "training": training})

    sweep = tmp_path / "sweep" / "docs_match"
    classifier = BertForSequenceClassification(
        CONFIG, vocab_size=len(TOKENS), pad_token_id=0, num_labels=2, classifier_dropout=0.1
    )
    initialize(classifier, CONFIG, seed=2)
    save_model(classifier, sweep / "best", id2label={0: "no match", 1: "match"})
    save_tokenizer(tokenizer, sweep / "best")
    write_task_file(sweep / "best", task_kind(task_config(max_length=48), ["no match", "match"]), {})
    (sweep / "result.json").write_text(json.dumps(result()))
    return SmallPipeline(pretrain, {"docs_match": sweep}, facts())


def task_config(**changes: Any) -> ClassificationTaskConfig:
    """Pairs, two classes."""
    fields: dict[str, Any] = {
        "kind": "classification",
        "source": DocsMatchSourceConfig(kind="docs_match", min_words=4, num_dev_rows=2, num_test_rows=2),
        "labels": None,
        "multi_label": False,
        "metric": "accuracy",
        "long_texts": "truncate",
        "window_overlap": 8,
        "shared_tokens": "plain",
    }
    return ClassificationTaskConfig(**{**tiny.task_fields(max_length=48), **fields, **changes})


def facts() -> dict[str, Any]:
    return {
        "params": {
            "model": {"hidden_size": 16},
            "optimizer": {"kind": "adamw", "lr": 3e-3},
            "pretrain": {
                "start_from": None,
                "max_steps": None,
                "phases": [{"steps": 3300, "max_length": 64, "global_batch_size": 64}],
                "mask_predictions": {"sentences": ["the [MASK]"]},
            },
            "tasks": {"docs_match": {"max_length": 48, "source": {"kind": "docs_match"}}},
        },
        "commit": "0123abc",
        "metrics": {"pretrain": metrics_of_the_stage()},
        "manifests": {
            "examples": {"random_next_prob": 0.5},
            "corpus": {
                "source": "python_docs",
                "counts": {"train": {"documents": 12, "sentences": 340, "words": 5600, "characters": 7890}},
                "dropped": {"paragraphs/too_few_words": 77},
                "packages": {"numpy": "2.0"},
            },
        },
    }


def metrics_of_the_stage() -> dict[str, float]:
    return {"val/mlm_loss": 4.5, "unigram_entropy": 6.0}
