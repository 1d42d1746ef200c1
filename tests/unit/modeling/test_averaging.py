"""The average of two encoders: its weights, its tokenizer, what may differ, and the command."""

import json

import pytest
import torch

import tiny
from bertline.foundation.errors import ArtifactError, ConfigError
from bertline.modeling.averaging import average_encoders
from bertline.modeling.huggingface import load_encoder
from bertline.modeling.weight_files import read_weights, write_weights
from bertline.tokenization.tokenizer import Tokenizer


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_each_weight_is_the_mean_of_both(tmp_path, share):
    first, second = (tiny.write_encoder(tmp_path / str(seed), heads=seed == 2, seed=seed) for seed in (1, 2))
    average_encoders(first, second, tmp_path / "mean", share=share)
    theirs, ours, mean = (load_encoder(folder).state_dict() for folder in (first, second, tmp_path / "mean"))
    assert mean.keys() == ours.keys()
    for name, tensor in mean.items():
        torch.testing.assert_close(tensor, share * ours[name] + (1 - share) * theirs[name])


def test_an_average_is_a_bare_encoder_with_the_tokenizer_of_the_second(tmp_path):
    first, second = (tiny.write_encoder(tmp_path / str(seed), heads=True, seed=seed) for seed in (1, 2))
    average_encoders(first, second, tmp_path / "mean")
    assert json.loads((tmp_path / "mean/config.json").read_text())["architectures"] == ["BertModel"]
    assert not [name for name in read_weights(tmp_path / "mean", with_output=False) if name.startswith("cls.")]
    assert Tokenizer.load(tmp_path / "mean").vocab == Tokenizer.load(second).vocab


@pytest.mark.parametrize("without", ["first", "second"])
def test_a_pooler_that_one_encoder_lacks_is_that_of_the_other(tmp_path, without):
    folders = {name: tiny.write_encoder(tmp_path / name, seed=seed) for seed, name in enumerate(("first", "second"))}
    weights = read_weights(folders[without], with_output=False)
    bare = {name: tensor for name, tensor in weights.items() if not name.startswith("bert.pooler.")}
    assert len(bare) == len(weights) - 2
    write_weights(bare, folders[without] / "model.safetensors")
    average_encoders(folders["first"], folders["second"], tmp_path / "mean")
    (other,) = folders.keys() - {without}
    name = "bert.pooler.dense.weight"
    kept, mean = (read_weights(folder, with_output=False)[name] for folder in (folders[other], tmp_path / "mean"))
    assert torch.equal(kept, mean)


def test_a_checkpoint_with_padded_embeddings_is_averaged_with_what_continued_it(tmp_path):
    first, second = (tiny.write_encoder(tmp_path / str(seed), seed=seed) for seed in (1, 2))
    average_encoders(first, second, tmp_path / "expected")
    name = "bert.embeddings.word_embeddings.weight"
    weights = read_weights(first, with_output=False)
    write_weights({**weights, name: torch.cat([weights[name], weights[name]])}, first / "model.safetensors")
    average_encoders(first, second, tmp_path / "mean")
    expected = load_encoder(tmp_path / "expected").state_dict()
    for key, tensor in load_encoder(tmp_path / "mean").state_dict().items():
        assert torch.equal(tensor, expected[key]), key


def test_encoders_of_two_shapes_are_refused_with_both_shapes(tmp_path):
    first = tiny.write_encoder(tmp_path / "first")
    second = tiny.write_encoder(tmp_path / "second")
    name = "bert.embeddings.word_embeddings.weight"
    weights = read_weights(second, with_output=False)
    write_weights({**weights, name: weights[name][:-1]}, second / "model.safetensors")
    with pytest.raises(
        ArtifactError, match=r"1 weights differ in shape \(embeddings.word_embeddings.weight: \(\d+, \d+\)"
    ):
        average_encoders(first, second, tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


def test_a_share_outside_0_to_1_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="from 0 to 1"):
        average_encoders(tmp_path, tmp_path, tmp_path / "mean", share=1.5)
