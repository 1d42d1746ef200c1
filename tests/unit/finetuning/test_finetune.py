"""A run learns, and is a function of its job."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import finished_tasks
from bertline.encoders.loading import load_encoder
from bertline.finetuning.finetune import fine_tune
from bertline.finetuning.job import DivergedError, check_options
from bertline.foundation.errors import ConfigError
from bertline.kinds.classification import Classification
from bertline.kinds.registry import task_kind


@pytest.fixture
def kind(inputs):
    return Classification(inputs.task(max_length=24), inputs.LABELS)


@pytest.fixture
def job(encoder, inputs, kind, job_of):
    def make(pairs=False, folder=encoder, kind=kind, encoder="pretrained", seed=0, checks=(), **config):
        train, dev = (inputs.learnable_rows(num_rows, seed=num_rows, pairs=pairs) for num_rows in (128, 64))
        made = job_of(kind, folder, train, dev, **config)
        return replace(made, encoder=encoder, seed=seed, checks=checks)

    return make


def weights(result):
    return {name: tensor.clone() for name, tensor in result.model.state_dict().items()}


def same_weights(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("pairs", [False, True])
def test_a_run_learns_what_can_be_learnt(job, pairs):
    result = fine_tune(job(pairs=pairs, num_epochs=6))
    assert [check.epoch for check in result.checks] == [1, 2, 3, 4, 5, 6]
    assert result.dev.scores == result.checks[-1].scores
    assert result.dev.scores["accuracy"] > 0.9


def test_after_each_epoch_the_score_is_told_and_raising_ends_the_run(job):
    told = []

    class EnoughError(Exception):
        pass

    def on_check(check):
        told.append(check)
        if check.epoch == 2:
            raise EnoughError

    with pytest.raises(EnoughError):
        fine_tune(job(num_epochs=5), on_check=on_check)
    assert [check.epoch for check in told] == [1, 2]
    assert [check.share for check in told] == [0.2, 0.4]
    assert all(0 <= check.scores["accuracy"] <= 1 for check in told)


class Scripted(Classification):
    """Says that dev has the scores that a test wants."""

    script: tuple[float, ...] = ()
    options = None

    def scores(self, statistics):
        self.said = getattr(self, "said", -1) + 1
        return {"accuracy": self.script[self.said]}

    def calibrate(self, rows, predictions):
        return {"mean": float(predictions[:, 0].mean())}

    def loss(self, model, batch, options):
        self.options = options
        return super().loss(model, batch, options)


@pytest.fixture
def scripted(inputs):
    def make(*script):
        kind = Scripted(inputs.task(max_length=24), inputs.LABELS)
        kind.script = script
        return kind

    return make


def epochs_seen(job, kind):
    """The weights after each epoch of a run, what it gave, and what calibration each epoch had."""
    seen, calibrations = [], []
    run = job(kind=kind, num_epochs=6, early_stopping_epochs=2)

    def keep(rows, predictions):
        calibrations.append(Scripted.calibrate(kind, rows, predictions))
        return calibrations[-1]

    kind.calibrate = keep
    original = kind.predict

    def predict(model, encoded, machine):
        seen.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        return original(model, encoded, machine)

    kind.predict = predict
    return seen, fine_tune(run), calibrations


def test_early_stopping_keeps_the_best_epoch_with_its_calibration(job, scripted):
    seen, result, calibrations = epochs_seen(job, scripted(0.5, 0.7, 0.6, 0.7, 0.9, 0.9))
    assert len(result.checks) == 4  # two epochs that are not better than the second (as good is not better)
    assert result.dev.scores == {"accuracy": 0.7}
    assert same_weights(weights(result), seen[1])
    assert result.dev.calibration == calibrations[1] != calibrations[3]


def test_a_score_that_is_no_number_is_the_worst(job, scripted):
    seen, result, _ = epochs_seen(job, scripted(float("nan"), 0.1, float("nan"), float("nan")))
    assert result.dev.scores == {"accuracy": 0.1}
    assert same_weights(weights(result), seen[1])


def test_looking_at_dev_in_the_middle_changes_nothing_and_is_told_in_order(job):
    undisturbed = fine_tune(job())
    told = []
    looked_at = fine_tune(job(checks=(0.1, 1 / 3, 0.5, 0.9)), on_check=told.append)
    assert same_weights(weights(undisturbed), weights(looked_at))
    assert [(check.share, check.epoch, check.at_epoch_end) for check in told] == [
        (0.1, 0, False),
        (1 / 3, 1, True),  # the end of an epoch: one look, not two
        (0.5, 1, False),
        (2 / 3, 2, True),
        (0.9, 2, False),
        (1.0, 3, True),
    ]
    assert tuple(told) == looked_at.checks
    assert looked_at.dev.scores == undisturbed.dev.scores


@pytest.fixture(scope="module")
def deep_encoder(tmp_path_factory, inputs):
    return inputs.write_encoder(tmp_path_factory.mktemp("deep"), num_hidden_layers=3)


def changed(result, folder):
    """Which parts of the encoder are not as the folder has them."""
    before = load_encoder(folder).state_dict()
    after = result.model.bert.state_dict()
    parts = {name: ".".join(name.split(".")[: 2 if name.startswith("layers") else 1]) for name in before}
    return {parts[name] for name in before if not torch.equal(before[name], after[name])}


@pytest.mark.parametrize(
    ("trained_layers", "expected"),
    [
        (None, {"embeddings", "layers.0", "layers.1", "layers.2", "pooler"}),
        (3, {"layers.0", "layers.1", "layers.2", "pooler"}),
        (1, {"layers.2", "pooler"}),
        (0, {"pooler"}),
    ],
)
def test_only_the_last_layers_and_the_head_are_trained(job, deep_encoder, trained_layers, expected):
    result = fine_tune(job(folder=deep_encoder, trained_layers=trained_layers, num_epochs=1))
    assert changed(result, deep_encoder) == expected
    without_gradient = {name.split(".")[1] for name, weight in result.model.named_parameters() if weight.grad is None}
    assert ("embeddings" in without_gradient) == (trained_layers is not None)


def test_frozen_layers_are_not_in_the_gradient_graph_and_have_no_dropout(job, scripted, deep_encoder):
    kind = scripted(*[0.5] * 9)
    graphs, modes = [], []

    def watched(model, batch, options):
        top = model.bert.layers[2]
        handle = top.register_forward_pre_hook(lambda module, inputs: graphs.append(inputs[0].requires_grad))
        modes.append([layer.training for layer in model.bert.layers] + [model.bert.embeddings.training, top.training])
        loss = Classification.loss(kind, model, batch, options)
        handle.remove()
        return loss

    kind.loss = watched
    fine_tune(job(kind=kind, folder=deep_encoder, trained_layers=1, num_epochs=2, checks=(0.25,)))
    assert graphs and not any(graphs)
    # After dev has been looked at, too.
    assert all(mode == [False, False, True, False, True] for mode in modes)


def test_top_layers_are_reinitialized_from_the_seed(job, deep_encoder):
    def run(seed=0, layers=2):
        # A rate this small leaves the weights where they began.
        config = {"learning_rate": 1e-12, "num_epochs": 1, "weight_decay": 0.0}
        return fine_tune(job(folder=deep_encoder, seed=seed, reinitialized_layers=layers, **config))

    def matrix(result, layer):
        return result.model.bert.layers[layer].output.weight

    untouched, first, again, other = run(layers=0), run(), run(), run(seed=1)
    assert torch.allclose(matrix(untouched, 0), matrix(first, 0), atol=1e-6)
    for layer in (1, 2):
        assert not torch.allclose(matrix(untouched, layer), matrix(first, layer), atol=1e-3)
        assert torch.equal(matrix(first, layer), matrix(again, layer))
        assert not torch.allclose(matrix(first, layer), matrix(other, layer), atol=1e-3)
    assert not torch.allclose(matrix(first, 1), matrix(first, 2), atol=1e-3)
    pooler = first.model.bert.pooler
    assert not torch.allclose(untouched.model.bert.pooler.weight, pooler.weight, atol=1e-3)
    assert 0.8 * 0.02 < pooler.weight.std() < 0.02  # the config's 0.02, cut at two standard deviations


@pytest.mark.parametrize("key", ["trained_layers", "reinitialized_layers"])
def test_more_layers_than_there_are_is_an_error_that_says_so(job, deep_encoder, key):
    with pytest.raises(ConfigError, match=rf"{key} is 4.*has 3 layers"):
        fine_tune(job(folder=deep_encoder, **{key: 4}))


def test_classes_are_weighed_by_what_they_lack(job, scripted):
    kind = scripted(0.5)
    kind.label_counts = lambda rows: np.array([96, 32])
    fine_tune(job(kind=kind, num_epochs=1, class_weights="balanced", label_smoothing=0.2))
    # 128 rows / (2 labels * 96), 128 / (2 * 32): the mean weight of a row is 1
    assert kind.options.class_weights.tolist() == pytest.approx([2 / 3, 2.0])
    assert kind.options.label_smoothing == 0.2


BOTH = {"class_weights", "label_smoothing"}
UNUSED = {
    **dict.fromkeys(("linear", "cosine", "crf", "question_answering", "retrieval"), BOTH),
    "reranking": {"class_weights"},
}


@pytest.mark.parametrize("name", sorted(finished_tasks.KINDS))
def test_an_option_that_a_task_cannot_heed_is_an_error(inputs, name):
    config, labels, _, _ = finished_tasks.KINDS[name]()
    kind, unused = task_kind(config, labels), set(UNUSED.get(name, ()))
    unused |= {"focal_gamma"} if config.kind != "classification" else set()
    assert kind.unused_options.keys() == unused
    check_options(kind, inputs.fine_tuning())
    values = {"class_weights": "balanced", "label_smoothing": 0.1, "focal_gamma": 2.0}
    for option in unused:
        with pytest.raises(ConfigError, match=f"fine_tuning.{option} is {values[option]}.* kind {config.kind}.*tasks"):
            check_options(kind, inputs.fine_tuning(**{option: values[option]}))
        with pytest.raises(ConfigError, match=f"{option} is varied"):
            check_options(kind, inputs.fine_tuning(), varied={option})


def test_a_new_head_is_not_scored_untrained(job):
    with pytest.raises(ConfigError, match="num_epochs is 0.*random weights"):
        fine_tune(job(num_epochs=0))


def test_a_run_that_diverges_says_where_and_what_to_try(job):
    with pytest.raises(DivergedError, match=r"(?s)step \d+ is .*learning rate of .*Lower fine_tuning.learning_rate"):
        fine_tune(job(learning_rate=1e30, warmup_fraction=0.0))
