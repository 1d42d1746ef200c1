"""Groups of weights by rate and decay."""

from __future__ import annotations

import pytest
import torch

import tiny
from bertline.finetuning.parameter_groups import fine_tuning_optimizer, freeze, parameter_groups
from bertline.foundation.errors import ConfigError
from bertline.modeling.bert import BertForSequenceClassification, BertModel
from bertline.modeling.heads import BertTextEncoder


def classifier(num_layers=4):
    config = tiny.model_config(num_hidden_layers=num_layers)
    return BertForSequenceClassification(config, vocab_size=45, pad_token_id=0, num_labels=2, classifier_dropout=0.1)


def by_name(model, groups):
    names = {id(weight): name for name, weight in model.named_parameters()}
    return {names[id(weight)]: group for group in groups for weight in group["params"]}


def test_the_rate_falls_from_the_head_down_to_the_embeddings():
    model = classifier()
    groups = by_name(model, parameter_groups(model, weight_decay=0.1, layer_decay=0.5))
    assert set(groups) == {name for name, _ in model.named_parameters()}
    factors = {name: group["rate_factor"] for name, group in groups.items()}
    assert factors["classifier.weight"] == factors["bert.pooler.bias"] == 1
    assert [factors[f"bert.layers.{layer}.output.weight"] for layer in range(4)] == [0.125, 0.25, 0.5, 1.0]
    assert factors["bert.embeddings.word_embeddings.weight"] == factors["bert.embeddings.norm.bias"] == 0.0625


def test_matrices_decay_and_vectors_do_not():
    model = classifier()
    for layer_decay in (1.0, 0.9):
        groups = by_name(model, parameter_groups(model, weight_decay=0.1, layer_decay=layer_decay))
        for name, weight in model.named_parameters():
            assert groups[name]["weight_decay"] == (0.1 if weight.ndim == 2 else 0.0)


def test_frozen_weights_are_in_no_group(inputs):
    model = classifier()
    freeze(model.bert, 1)
    optimizer = fine_tuning_optimizer(model, inputs.fine_tuning(layer_decay=0.5))
    held = by_name(model, optimizer.param_groups)
    assert {name.removeprefix("bert.").split(".")[0] for name in held} == {"layers", "pooler", "classifier"}
    assert {name.split(".")[2] for name in held if name.startswith("bert.layers")} == {"3"}
    sum(weight.sum() for weight in model.parameters() if weight.requires_grad).backward()
    optimizer.step()
    assert set(by_name(model, [{"params": list(optimizer.state)}])) == set(held)


def test_nothing_to_train_is_an_error_that_says_what_to_do(inputs):
    model = BertTextEncoder(BertModel(tiny.model_config(), vocab_size=45, pad_token_id=0), pooling="mean")
    model.requires_grad_(False)
    with pytest.raises(ConfigError, match="nothing to train.*num_epochs to 0"):
        fine_tuning_optimizer(model, inputs.fine_tuning())
    assert torch.is_grad_enabled()
