"""The smallest things that most tests need: an architecture, a runtime section, an encoder folder with a vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
import yaml

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

CONF = Path(__file__).resolve().parents[2] / "conf"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = tuple(f"word{number}" for number in range(40))


@cache
def _read(name: str) -> dict[str, Any]:
    return yaml.safe_load((CONF / f"{name}.yaml").read_text(encoding="utf-8"))


def defaults(name: str, **changes: Any) -> dict[str, Any]:
    """The keys and values of a file of conf/, with changes, so that a new key needs no test to name it.

    What only the user knows, and the files of its defaults list, are left out.
    """
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in deepcopy(_read(name)).items()}
    return {key: value for key, value in values.items() if value != "???" and key != "defaults"} | changes


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
    own = {
        "device": "cpu", "num_workers": 0, "num_threads": 1, "compile": "off", "launcher": {"kind": "local"},
        "sweep_workers": 1, "checkpoint_every_s": None, "peer_timeout_s": 120.0,
    }  # fmt: skip
    return defaults("runtime/default", **{**own, **changes})


def task_fields(**changes: Any) -> dict[str, Any]:
    """What every kind of task has, for its configuration."""
    return defaults("task/base/rows", **{"max_length": 24, "split_seed": 1, **changes})


def conll_source(**changes: Any) -> ConllSourceConfig:
    """Two columns, word and tag."""
    fields: dict[str, Any] = {
        "kind": "conll", "path": "", "train_file": None, "dev_file": None, "test_file": None, "word_column": 0,
        "tag_column": 1, "separator": "tab", "types": None, "encoding": "utf-8", "on_bad_row": "error",
    }  # fmt: skip
    return ConllSourceConfig(**{**fields, **changes})


def tagging_task(**changes: Any) -> TokenClassificationTaskConfig:
    """Softmax over the first token of each word, nothing marked, no margin."""
    own = {"source": conll_source(), "word_logits": "first", "window_overlap": 4}
    fields = defaults("task/base/token_classification", **own)
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
