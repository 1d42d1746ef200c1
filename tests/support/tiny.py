"""The smallest things that most tests need: an architecture, a runtime section, an encoder folder with a vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bertline.encoders.loading import save_model
from bertline.foundation.files import write_json
from bertline.kinds.token_classification import TokenClassificationTaskConfig
from bertline.modeling.attention import AttentionKind
from bertline.modeling.bert import BertForMaskedLM, BertForPreTraining, BertForSequenceClassification, BertModel
from bertline.modeling.config import ModelConfig
from bertline.modeling.huggingface import load_with_head
from bertline.modeling.initialization import initialize
from bertline.pretraining.objectives.base import Mlm, Objective
from bertline.pretraining.objectives.sentence_pairs import MlmNsp
from bertline.tasks.source_config import ConllSourceConfig
from bertline.training.config import LocalLauncherConfig, RuntimeConfig
from bertline.training.devices import Machine, Ranks

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = tuple(f"word{number}" for number in range(40))


def mlm_nsp(nsp_weight: float = 1.0) -> Objective:
    """The objective of the paper."""
    return MlmNsp(kind="mlm_nsp", nsp_weight=nsp_weight)


def mlm() -> Objective:
    """Masked tokens alone."""
    return Mlm(kind="mlm")


def model_config(**changes: Any) -> ModelConfig:
    """Two layers of 32."""
    fields: dict[str, Any] = {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
        "max_position_embeddings": 16, "type_vocab_size": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1, "initializer_range": 0.02, "layer_norm_eps": 1e-12,
    }  # fmt: skip
    return ModelConfig(**{**fields, **changes})


def runtime(**changes: Any) -> RuntimeConfig:
    """One CPU thread, nothing compiled."""
    fields = {**runtime_section(), "launcher": LocalLauncherConfig(kind="local"), **changes}
    return RuntimeConfig(**fields)


def runtime_section(**changes: Any) -> dict[str, Any]:
    """The same as a mapping, for tests that validate a whole configuration."""
    fields: dict[str, Any] = {
        "device": "cpu", "num_devices": 1, "num_nodes": 1, "num_workers": 0, "engine": "local", "num_threads": 1,
        "micro_batch_size": None, "micro_batch_tokens": None, "packing": "auto", "compile": "off",
        "attention": "auto", "launcher": {"kind": "local"}, "sweep_workers": 1, "runs_folder": "runs",
        "progress_every_s": 10.0, "checkpoint_every_s": None, "peer_timeout_s": 120.0,
        "profile": False,
    }  # fmt: skip
    return {**fields, **changes}


def task_fields(**changes: Any) -> dict[str, Any]:
    """What every kind of task has, for its configuration."""
    fields: dict[str, Any] = {
        "max_length": 24, "num_train_rows": None, "label_efficiency_rows": (), "max_dev_rows": None,
        "max_test_rows": None, "dev_fraction": 0.1, "test_fraction": 0.1, "split_seed": 1, "start_from": None,
        "teacher": None, "unlabelled": None, "num_trials": None, "space": {}, "fine_tuning": {},
    }  # fmt: skip
    return {**fields, **changes}


def conll_source(**changes: Any) -> ConllSourceConfig:
    """Two columns, word and tag."""
    fields: dict[str, Any] = {
        "kind": "conll", "path": "", "train_file": None, "dev_file": None, "test_file": None, "word_column": 0,
        "tag_column": 1, "separator": "tab", "types": None, "encoding": "utf-8", "on_bad_row": "error",
    }  # fmt: skip
    return ConllSourceConfig(**{**fields, **changes})


def tagging_task(**changes: Any) -> TokenClassificationTaskConfig:
    """Softmax over the first token of each word, nothing marked, no margin."""
    fields: dict[str, Any] = {
        "kind": "token_classification", "source": conll_source(), "head": "softmax", "word_logits": "first",
        "word_case": "plain", "outside_margin": "none", "window_overlap": 4, "metric": "entity_f1",
    }  # fmt: skip
    return TokenClassificationTaskConfig(**{**fields, **task_fields(), **changes})


def machine(**changes: Any) -> Machine:
    """The CPU in fp32."""
    fields: dict[str, Any] = {"device": torch.device("cpu"), "precision": "fp32", "compile": False, "ranks": Ranks()}
    return Machine(**{**fields, **changes})


def write_vocabulary(folder: Path, words: tuple[str, ...] = WORDS) -> int:
    """Tokenizer files of the special tokens and whole words; returns how many tokens there are."""
    folder.mkdir(parents=True, exist_ok=True)
    tokens = (*SPECIAL, *words)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    write_json(folder / "tokenizer_config.json", {"do_lower_case": True})
    return len(tokens)


def write_encoder(
    folder: Path, *, heads: bool = False, seed: int = 7, words: tuple[str, ...] = WORDS, **changes: Any
) -> Path:
    """A Hugging Face folder with its vocabulary; `heads` adds those of pretraining, `changes` are of `model_config`."""
    config = model_config(**changes)
    make = BertForPreTraining if heads else BertModel
    model = make(config, vocab_size=write_vocabulary(folder, words), pad_token_id=0)
    initialize(model, config, seed=seed)
    save_model(model, folder)
    return folder


def write_classifier(folder: Path, labels: Sequence[str], *, seed: int, words: tuple[str, ...], **changes: Any) -> Path:
    """The same of a classifier."""
    config, vocab_size = model_config(**changes), write_vocabulary(folder, words)
    settings = {"vocab_size": vocab_size, "num_labels": len(labels)}
    model = BertForSequenceClassification(config, pad_token_id=0, classifier_dropout=0.1, **settings)
    initialize(model, config, seed=seed)
    save_model(model, folder, id2label=dict(enumerate(labels)))
    return folder


def load_pretraining_model(folder: Path, *, attention: AttentionKind = "plain") -> BertForPreTraining:
    """A folder's model with both pretraining heads."""
    return load_with_head(folder, partial(BertForPreTraining, attention=attention))


def load_masked_lm(folder: Path, *, attention: AttentionKind = "plain") -> BertForMaskedLM:
    """A folder's model with the masked language model head alone."""
    return load_with_head(folder, partial(BertForMaskedLM, attention=attention))
