"""What is refused when a model folder is read, and what is left behind when one cannot be written."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import tiny
from bertline.encoders.loading import load_encoder, load_model, save_model
from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import write_json
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.checkpoint import Checkpoint
from bertline.modeling.initialization import initialize
from bertline.modeling.weight_files import write_weights
from tiny import load_pretraining_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = BertForPreTraining(tiny.model_config(), vocab_size=50, pad_token_id=0)
    initialize(model, tiny.model_config(), seed=0)
    save_model(model, tmp_path / "model")
    return tmp_path / "model"


def not_finite(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.clone()
    tensor[0, 0], tensor[0, 1], tensor[1, 0] = float("nan"), float("inf"), -float("inf")
    return tensor


WEIGHT = "bert.encoder.layer.1.output.dense.weight"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("bert.encoder.layer.1.attention.self.key.bias", lambda _: None, r"lacks bert\.encoder\..*\.key\.bias"),
        ("cls.predictions.bias", lambda bias: bias[:49], r"shape \[49\], config\.json makes it \[50\]"),
        ("cls.predictions.decoder.weight", lambda _: torch.zeros(50, 32), "differs from the word embeddings"),
        (WEIGHT, not_finite, rf"model\.safetensors: {WEIGHT} has values that are not finite"),
    ],
)
def test_weights_that_are_missing_misshapen_untied_or_not_finite_are_refused_by_name(folder, name, change, message):
    weights = load_file(folder / "model.safetensors")
    weights[name] = change(weights.get(name))
    save_file({key: tensor for key, tensor in weights.items() if tensor is not None}, folder / "model.safetensors")
    for read in (load_pretraining_model, load_encoder)[: 1 + (name == WEIGHT)]:
        with pytest.raises(ArtifactError, match=message):
            read(folder)


def test_a_torn_file_is_named_and_a_pickle_is_refused_with_the_way_out(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    for read in (load_encoder, lambda folder: Checkpoint.open(folder).architecture):
        with pytest.raises(ArtifactError, match="not a whole safetensors file"):
            read(folder)
    path.rename(folder / "pytorch_model.bin")
    with pytest.raises(ArtifactError, match=r"pytorch_model\.bin only, a pickle.*save_pretrained"):
        load_pretraining_model(folder)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model_type", "gpt2", "model_type is 'gpt2'; bertline reads bert, roberta, "),
        ("position_embedding_type", "relative_key", "position_embedding_type is 'relative_key'"),
        ("is_decoder", True, "is_decoder is True"),
        ("hidden_act", "swish", "hidden_act is 'swish'"),
        ("num_attention_heads", 5, "multiple of num_attention_heads"),
        ("type_vocab_size", 0, "type_vocab_size must be at least 1 in family bert"),
        ("hidden_size", None, "hidden_size missing"),
    ],
)
def test_architectures_that_are_not_computed_are_refused(folder: Path, key: str, value: Any, message: str) -> None:
    mapping = json.loads((folder / "config.json").read_text()) | {key: value}
    mapping = {name: item for name, item in mapping.items() if item is not None}
    with pytest.raises(ArtifactError, match=message):
        write_json(folder / "config.json", mapping)
        Checkpoint.open(folder)


def test_a_checkpoint_of_2018_needs_only_its_five_sizes(tmp_path: Path) -> None:
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    write_json(tmp_path / "config.json", {**sizes, "vocab_size": 9})
    checkpoint = Checkpoint.open(tmp_path)
    config = checkpoint.config
    assert (config.hidden_act, config.layer_norm_eps, config.max_position_embeddings) == ("gelu", 1e-12, 512)
    assert (checkpoint.vocab_size, checkpoint.pad_token_id) == (9, 0)


def test_the_architecture_is_told_by_the_weights(folder: Path) -> None:
    assert Checkpoint.open(folder).architecture == "BertForPreTraining"
    mapping = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**mapping, "architectures": None}))
    assert Checkpoint.open(folder).architecture == "BertForPreTraining"
    save_model(load_encoder(folder), folder)
    assert Checkpoint.open(folder).architecture == "BertModel"


def test_what_a_folder_lacks_is_drawn_as_in_a_model_that_is_drawn_whole(folder: Path) -> None:
    state = torch.get_rng_state()
    found = load_model(folder, "sequence", num_outputs=3, is_new=True, dropout_prob=0.3, seed=11)
    assert found.dropout.p == found.bert.config.hidden_dropout_prob == found.bert.layers[0].output_dropout.p == 0.3
    assert torch.equal(torch.get_rng_state(), state)
    whole = load_model(folder, "sequence", num_outputs=3, is_new=True, seed=12)
    initialize(whole, whole.bert.config, seed=11)
    assert torch.equal(found.classifier.weight, whole.classifier.weight)
    encoder = load_encoder(folder)
    for name, weight in encoder.named_parameters():
        assert torch.equal(found.bert.get_parameter(name), weight), name


def test_weights_are_written_without_a_copy_of_them_in_memory(tmp_path: Path) -> None:
    weights = {"weight": torch.ones(1024, 1024)}
    tracemalloc.start()
    try:
        write_weights(weights, tmp_path / "model.safetensors")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < weights["weight"].nbytes / 4
    assert load_file(tmp_path / "model.safetensors")["weight"].equal(weights["weight"])
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    (tmp_path / "text").touch()
    assert (tmp_path / "model.safetensors").stat().st_mode == (tmp_path / "text").stat().st_mode
