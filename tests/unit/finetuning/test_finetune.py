"""A run learns, and is a function of its job."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bertline.finetuning.encoding import encode_rows
from bertline.finetuning.finetune import FineTuningJob, fine_tune, predict_probabilities
from bertline.modeling.huggingface import load_encoder
from bertline.tokenization.tokenizer import Tokenizer


@pytest.fixture
def job(encoder_folder, inputs, machine):
    tokenizer = Tokenizer.load(encoder_folder)

    def make(encoder="pretrained", seed=0, pairs=False, **config):
        train, dev = (
            encode_rows(inputs.learnable_rows(n, seed=n, pairs=pairs), tokenizer, max_length=24) for n in (128, 64)
        )
        return FineTuningJob(
            config=inputs.fine_tuning(**config),
            encoder=encoder,
            pretrain_folder=encoder_folder,
            train=train,
            dev=dev,
            num_labels=2,
            metric="accuracy",
            seed=seed,
            machine=machine,
            runtime=inputs.runtime(),
        )

    return make


def weights(result):
    return {name: tensor.clone() for name, tensor in result.model.state_dict().items()}


@pytest.mark.parametrize("pairs", [False, True])
def test_a_run_learns_what_can_be_learnt(job, pairs):
    result = fine_tune(job(pairs=pairs, num_epochs=6))
    assert len(result.dev_scores) == 6
    assert result.dev_score == result.dev_scores[-1] > 0.9


def test_the_same_job_gives_the_same_weights_to_the_bit(job):
    first = weights(fine_tune(job()))
    torch.manual_seed(1234)  # what the process drew before does not matter
    torch.rand(5)
    again = weights(fine_tune(job()))
    assert all(torch.equal(first[name], again[name]) for name in first)


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

    def on_epoch(epoch, dev_score):
        told.append((epoch, dev_score))
        if epoch == 2:
            raise EnoughError

    with pytest.raises(EnoughError):
        fine_tune(job(num_epochs=5), on_epoch=on_epoch)
    assert [epoch for epoch, _ in told] == [1, 2]
    assert all(0 <= score <= 1 for _, score in told)


def test_probabilities_do_not_depend_on_what_else_is_in_the_batch(job):
    run = job(num_epochs=1)
    model = fine_tune(run).model
    together = predict_probabilities(model, run.dev, run.machine)
    assert np.allclose(together.sum(axis=1), 1, atol=1e-5)
    assert np.allclose(together[:5], predict_probabilities(model, run.dev.first(5), run.machine), atol=1e-5)
    assert model.training  # scoring leaves the mode as it was
