"""The average of two encoders: its weights, its tokenizer, what may differ, and the command."""

import json

import pytest
import torch

import tiny
from bertline.foundation.errors import ArtifactError
from bertline.modeling.averaging import average_encoders
from bertline.modeling.huggingface import load_encoder
from bertline.modeling.weight_files import read_weights, write_weights
from bertline.tokenization.tokenizer import Tokenizer


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_each_weight_of_the_bare_encoder_is_the_mean_of_both_and_the_tokenizer_is_the_second_s(tmp_path, share):
    first, second = (tiny.write_encoder(tmp_path / str(seed), heads=True, seed=seed) for seed in (1, 2))
    average_encoders(first, second, tmp_path / "mean", share=share)
    theirs, ours, mean = (load_encoder(folder).state_dict() for folder in (first, second, tmp_path / "mean"))
    assert mean.keys() == ours.keys()
    for name, tensor in mean.items():
        torch.testing.assert_close(tensor, share * ours[name] + (1 - share) * theirs[name])
    assert json.loads((tmp_path / "mean/config.json").read_text())["architectures"] == ["BertModel"]
    assert not [name for name in read_weights(tmp_path / "mean", with_output=False) if name.startswith("cls.")]
    assert Tokenizer.load(tmp_path / "mean").vocab == Tokenizer.load(second).vocab


def test_encoders_of_two_shapes_are_refused_with_both_shapes(tmp_path):
    first, second = (tiny.write_encoder(tmp_path / name) for name in ("first", "second"))
    name = "bert.embeddings.word_embeddings.weight"
    weights = read_weights(second, with_output=False)
    write_weights({**weights, name: weights[name][:-1]}, second / "model.safetensors")
    with pytest.raises(ArtifactError, match=r"1 weights differ in shape \(embeddings.word_embeddings.weight: \(\d+, "):
        average_encoders(first, second, tmp_path / "mean")
    assert not (tmp_path / "mean").exists()
