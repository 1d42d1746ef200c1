"""Numbers of parameters that papers and courses quote, counted on models without memory (the meta device)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from torch import nn

from bertline.encoders.wrapped import model_section
from bertline.foundation.validation import validate
from bertline.modeling.bert import BertForMaskedLM, BertForPreTraining
from bertline.modeling.config import ModelConfig
from bertline.modeling.families import FAMILIES
from bertline.modeling.huggingface import weights_on_disk

CONF = Path(__file__).resolve().parents[2] / "conf"
VOCABULARIES = {
    "bert": 30_522, "roberta": 50_265, "distilbert": 30_522, "albert": 30_000, "electra": 30_522, "modernbert": 50_368
}  # fmt: skip
_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}


def preset(name: str, **changes: Any) -> dict[str, Any]:
    """The section of conf/model, with changes."""
    with initialize_config_dir(str(CONF), version_base=None):
        section: Any = OmegaConf.to_container(compose("config", overrides=[f"model={name}"]).model)
    return {**section, **changes}


def config_of(section: dict[str, Any]) -> ModelConfig:
    return validate(ModelConfig, section if section.get("family", "bert") == "bert" else model_section(section))


def adopted(section: dict[str, Any], kind: type[nn.Module]) -> int:
    """Parameters of bertline's model as its folder has them, with the rows that RoBERTa's positions do not use."""
    config = config_of(section)
    padding = 1 if FAMILIES[config.family].positions_follow_padding else 0
    with torch.device("meta"):
        model = kind(config, vocab_size=VOCABULARIES[config.family], pad_token_id=padding)
        return sum(weight.numel() for weight in weights_on_disk(model).values())


def wrapped(section: dict[str, Any], kind: str) -> int:
    """Parameters of a class of transformers with the sizes of a preset."""
    config = config_of(section)
    settings = transformers.AutoConfig.for_model(config.family, **config.own, vocab_size=VOCABULARIES[config.family])
    with torch.device("meta"):
        return sum(weight.numel() for weight in getattr(transformers, kind)(settings).parameters())


BERT, BERT_LARGE = preset("base"), preset("large")
ROBERTA, DISTILBERT, ALBERT = preset("roberta_base"), preset("distilbert_base"), preset("albert_base")
ELECTRA_GENERATOR = preset("electra_small", hidden_size=64, num_attention_heads=1, intermediate_size=256)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (adopted(BERT, BertForPreTraining), 110_106_428),
        (adopted(BERT_LARGE, BertForPreTraining), 336_226_108),
        (adopted(ROBERTA, BertForMaskedLM), 124_697_433),
        (adopted({**ROBERTA, **_LARGE}, BertForMaskedLM), 355_412_057),
        (adopted(DISTILBERT, BertForMaskedLM), 66_985_530),
        (wrapped(ALBERT, "AlbertForPreTraining"), 11_813_810),
        (wrapped(preset("electra_small"), "ElectraForPreTraining"), 13_549_057),
        (wrapped(ELECTRA_GENERATOR, "ElectraForMaskedLM"), 4_620_026),
        (wrapped(preset("modernbert_base"), "ModernBertForMaskedLM"), 149_655_232),
    ],
)
def test_presets_have_the_parameters_of_the_published_models(found: int, expected: int) -> None:
    assert found == expected
