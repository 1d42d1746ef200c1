"""A run learns, and is a function of its job."""

from __future__ import annotations

import numpy as np
import pytest
import tiny
import torch

from bertline.finetuning.finetune import FineTuningJob, TaskSplit, fine_tune
from bertline.finetuning.kinds.classification import Classification
from bertline.modeling.huggingface import load_encoder
from bertline.tokenization.tokenizer import Tokenizer


@pytest.fixture
def kind(inputs):
    return Classification(inputs.task(max_length=24), inputs.LABELS)


@pytest.fixture
def job(encoder_folder, inputs, machine, kind):
    tokenizer = Tokenizer.load(encoder_folder)

    def split(num_rows, pairs=False):
        rows = inputs.learnable_rows(num_rows, seed=num_rows, pairs=pairs)
        return TaskSplit(rows=rows, encoded=kind.encode(rows, tokenizer))

    def make(
        encoder="pretrained",
        seed=0,
        pairs=False,
        folder=encoder_folder,
        checks=(),
        runtime=None,
        num_train=128,
        **config,
    ):
        return FineTuningJob(
            kind=kind,
            config=inputs.fine_tuning(**config),
            encoder=encoder,
            encoder_folder=folder,
            train=split(num_train, pairs),
            dev=split(64, pairs),
            seed=seed,
            machine=machine,
            runtime=runtime or tiny.runtime(),
            checks=checks,
        )

    return make


def weights(result):
    return {name: tensor.clone() for name, tensor in result.model.state_dict().items()}


def same_weights(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("pairs", [False, True])
def test_a_run_learns_what_can_be_learnt(job, pairs):
    result = fine_tune(job(pairs=pairs, num_epochs=6))
    assert [check.epoch for check in result.checks] == [1, 2, 3, 4, 5, 6]
    assert result.dev_scores == result.checks[-1].scores
    assert result.dev_scores["accuracy"] > 0.9


def test_the_same_job_gives_the_same_weights_to_the_bit(job):
    first = weights(fine_tune(job()))
    torch.manual_seed(1234)  # what the process drew before does not matter
    torch.rand(5)
    assert same_weights(first, weights(fine_tune(job())))


def test_another_seed_gives_other_weights(job):
    first, other = (weights(fine_tune(job(seed=seed)))["classifier.weight"] for seed in (0, 1))
    assert not torch.equal(first, other)


def test_random_weights_are_not_the_pretrained_ones(job, encoder_folder):
    def embeddings_at_start(encoder):
        # A rate this small leaves the weights where they began.
        result = fine_tune(job(encoder=encoder, learning_rate=1e-12, num_epochs=1))
        return result.model.bert.embeddings.word_embeddings.weight.detach()

    pretrained = load_encoder(encoder_folder).embeddings.word_embeddings.weight.detach()
    assert torch.allclose(embeddings_at_start("pretrained"), pretrained, atol=1e-6)
    assert not torch.allclose(embeddings_at_start("random"), pretrained, atol=1e-2)


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


def test_probabilities_do_not_depend_on_what_else_is_in_the_batch(job, kind, encoder_folder):
    run = job(num_epochs=1)
    model = fine_tune(run).model
    together = kind.predict(model, run.dev.encoded, run.machine)
    few = kind.encode(run.dev.rows.first(5), Tokenizer.load(encoder_folder))
    assert np.allclose(together.sum(axis=1), 1, atol=1e-5)
    assert np.allclose(together[:5], kind.predict(model, few, run.machine), atol=1e-5)
    assert model.training  # scoring leaves the mode as it was
