"""The door to a finished model: blanks, vectors, labels, attention, and what it says when it cannot."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import bertline
from bertline.foundation.errors import ArtifactError, DataError, MachineError
from bertline.inference.loading import load
from bertline.modeling.huggingface import save_model
from tiny import load_pretraining_model


def test_each_blank_gets_its_likeliest_tokens_in_order(encoder_folder: Path) -> None:
    model = bertline.load(str(encoder_folder), device="cpu")
    blanks = model.fill_mask("the [MASK] sat on the [MASK].", top_k=3)
    assert len(blanks) == 2
    for guesses in blanks:
        probabilities = [guess.probability for guess in guesses]
        assert len(guesses) == 3
        assert probabilities == sorted(probabilities, reverse=True)
        assert not {guess.token for guess in guesses} & {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
    assert blanks[0] != blanks[1]


def test_blanks_are_filled_with_the_model_head_probabilities(encoder_folder: Path) -> None:
    model = load(str(encoder_folder), device="cpu")
    (guesses,) = model.fill_mask("the [MASK] sat", top_k=14)
    raw = load_pretraining_model(encoder_folder).eval()
    ids = torch.tensor([[2, 5, 4, 7, 3]])
    logits = raw(ids, torch.zeros_like(ids), None, torch.tensor([[2]])).mlm_logits
    expected = logits[0, 0].softmax(-1)
    for token, probability in guesses:
        assert probability == pytest.approx(expected[model.tokenizer.vocab.index(token)].item(), abs=1e-6)


def test_text_without_a_blank_or_too_long_is_an_error(encoder_folder: Path) -> None:
    model = load(str(encoder_folder))
    with pytest.raises(DataError, match=r"no \[MASK\]"):
        model.fill_mask("the cat")
    with pytest.raises(DataError, match="reads at most 12"):
        model.fill_mask("the " * 20 + "[MASK]")


def test_vectors_do_not_depend_on_the_company(encoder_folder: Path) -> None:
    model = load(str(encoder_folder))
    texts = ["the cat", "a dog sat on the mat .", "", "the cat sat"]
    together = model.embed(texts, batch_size=2)
    alone = np.concatenate([model.embed([text]) for text in texts])
    assert together.shape == (4, 16)
    assert together.dtype == np.float32
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_attentions_name_the_tokens_and_sum_to_one(encoder_folder: Path) -> None:
    attentions = load(str(encoder_folder)).attentions("The cats", "a Café")
    assert attentions.tokens == ("[CLS]", "the", "cat", "##s", "[SEP]", "a", "cafe", "[SEP]")
    assert attentions.probabilities.shape == (2, 2, 8, 8)
    np.testing.assert_allclose(attentions.probabilities.sum(-1), 1, atol=1e-5)


def test_predictions_are_probabilities_of_named_labels(classifier_folder: Path) -> None:
    model = load(str(classifier_folder))
    first, second = model.predict(["the cat sat", "a mat"])
    assert model.labels == ("animal", "place", "thing")
    assert first.label == max(first.probabilities, key=first.probabilities.__getitem__)
    assert first.probability == first.probabilities[first.label]
    assert sum(second.probabilities.values()) == pytest.approx(1)


def test_the_order_and_the_second_text_of_a_pair_matter(classifier_folder: Path) -> None:
    model = load(str(classifier_folder))
    pairs, truncated = model.label_probabilities(["the cat", "a mat"], ["a mat", "the cat"])
    assert not np.allclose(pairs[0], pairs[1], atol=1e-4)
    assert truncated == 0


def test_long_texts_are_cut_and_counted(classifier_folder: Path) -> None:
    model = load(str(classifier_folder))
    fits, too_long = "the " * 10, "the " * 11
    _, truncated = model.label_probabilities([fits, too_long, "the"])
    assert truncated == 1
    _, truncated = model.label_probabilities([fits, "the", "the"], ["the", "the " * 8, "the"])
    assert truncated == 1  # 10 + 1 + 3 special ones is over 12, 1 + 8 + 3 is not


def test_missing_capabilities_name_what_to_load_instead(encoder_folder: Path, classifier_folder: Path) -> None:
    with pytest.raises(ArtifactError, match="cannot classify"):
        load(str(encoder_folder)).predict(["the"])
    with pytest.raises(ArtifactError, match="cannot fill blanks"):
        load(str(classifier_folder)).fill_mask("the [MASK]")
    assert load(str(classifier_folder)).embed(["the"]).shape == (1, 16)


def test_a_folder_that_is_none_and_a_device_that_is_not_there_are_named(encoder_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        load(str(tmp_path / "nowhere"))
    with pytest.raises(ArtifactError, match=r"model\.safetensors"):
        load(str(tmp_path))
    with pytest.raises(MachineError, match="cannot be used here"):
        load(str(encoder_folder), device="abacus")


def test_a_model_with_weights_that_are_not_finite_is_refused_when_it_is_opened(
    encoder_folder: Path, tmp_path: Path
) -> None:
    model = load_pretraining_model(encoder_folder)
    with torch.no_grad():
        model.bert.pooler.bias[0] = float("nan")
    shutil.copytree(encoder_folder, tmp_path / "model")
    save_model(model, tmp_path / "model")
    with pytest.raises(ArtifactError, match=r"model\.safetensors: bert\.pooler\.dense\.bias has 1 of 16 values"):
        bertline.load(str(tmp_path / "model"))
