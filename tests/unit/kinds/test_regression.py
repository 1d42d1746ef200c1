"""Numbers for pairs: the linear and the cosine head, scales, and what is saved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import RidgeCV

import bertline
import finished_tasks
from bertline.encoders.loading import load_encoder
from bertline.finetuning.finetune import fine_tune
from bertline.finetuning.task_file import write_task_file
from bertline.kinds.base import HeadSettings, LossOptions
from bertline.kinds.registry import task_kind
from bertline.kinds.regression import Regression
from bertline.modeling.heads import pooled
from bertline.tasks.stored_rows import NumberRows
from bertline.tokenization.storage import copy_tokenizer
from tiny import WORDS


@pytest.fixture
def task():
    return lambda **changes: finished_tasks.config_of("linear", **{"low": 1.0, "metric": "pearson", **changes})


def alike_rows(num_rows, seed=0, halves=2):
    """Pairs of four words; the number is how many of the second text are of the first one's half of the vocabulary.

    With one half, the second text alone says the number.
    """
    random = np.random.default_rng(seed)
    halves, shared = random.integers(0, halves, num_rows), random.integers(0, 5, num_rows)

    def text(of_first_half):
        return " ".join(WORDS[(0 if first else 20) + random.integers(0, 20)] for first in of_first_half)

    firsts = [text([half] * 4) for half in halves]
    seconds = [text([half] * n + [1 - half] * (4 - n)) for half, n in zip(halves, shared, strict=True)]
    return NumberRows([str(row) for row in range(num_rows)], firsts, seconds, 1.0 + shared)


@pytest.mark.parametrize("head", ["linear", "cosine"])
def test_a_run_learns_numbers(task, encoder, job_of, head):
    kind = task_kind(task(head=head), ())
    train, dev = (alike_rows(num_rows, seed, 1 if head == "linear" else 2) for num_rows, seed in ((256, 1), (64, 2)))
    result = fine_tune(job_of(kind, encoder, train, dev, num_epochs=10, learning_rate=1e-2))
    assert result.dev.scores["pearson"] > 0.8
    assert result.dev.scores["spearman"] > 0.8


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_the_cosine_head_is_the_encoder_as_it_is(task, encoder, tokenizer, machine, pooling):
    kind = Regression(task(head="cosine", pooling=pooling), ())
    model = kind.new_model(encoder, HeadSettings(0.1, 0, "plain"))
    rows = alike_rows(20)
    found = kind.predict(model, kind.encode(rows, tokenizer), machine)
    encoder = load_encoder(encoder).eval()

    def vector(text):
        ids = torch.tensor([[tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id]])
        with torch.no_grad():
            return pooled(encoder(ids, torch.zeros_like(ids)).hidden_states, torch.ones_like(ids), pooling)

    for first, second, prediction in zip(rows.texts, rows.text_pairs, found, strict=True):
        cosine = torch.cosine_similarity(vector(first), vector(second)).item()
        assert prediction == pytest.approx(1.0 + 4.0 * cosine, abs=1e-5)


def test_linear_predictions_are_on_the_tasks_own_scale_and_never_outside(task, encoder, tokenizer, machine):
    kind = Regression(task(), ())
    model = kind.new_model(encoder, HeadSettings(0.0, 0, "plain"))
    rows = alike_rows(30)
    encoded = kind.encode(rows, tokenizer)
    assert encoded.targets == pytest.approx((rows.numbers - 1) / 4)

    def predicted(weight, bias):
        with torch.no_grad():
            model.classifier.weight.mul_(weight)
            model.classifier.bias.fill_(bias)
        return kind.predict(model, encoded, machine)

    assert predicted(0.0, 0.25) == pytest.approx(2.0)
    assert predicted(0.0, 1.5).tolist() == [5.0] * 30
    assert predicted(0.0, -0.5).tolist() == [1.0] * 30


@pytest.mark.parametrize("pairs", [False, True])
def test_a_frozen_encoder_has_a_ridge_regression_on_vectors_and_of_pairs_on_their_cosine_too(
    task, encoder, tokenizer, job_of, tmp_path, pairs
):
    config = task(low=1.0)
    kind = Regression(config if pairs else replace(config, source=replace(config.source, text_pair_column=None)), ())
    train, dev = (alike_rows(num_rows, seed) for num_rows, seed in ((60, 1), (30, 2)))
    if not pairs:
        train, dev = (replace(rows, text_pairs=None) for rows in (train, dev))
    job = job_of(kind, encoder, train, dev, method="frozen")
    result = fine_tune(job)
    vectors = []
    for rows in (train, dev):
        batch = kind.encode(rows, tokenizer).sequences.batch(np.arange(len(rows)))
        with torch.no_grad():
            inputs = (batch[name] for name in ("input_ids", "token_type_ids", "attention_mask"))
            vectors.append(result.model.vectors(*inputs).numpy())
    if pairs:
        vectors = [np.column_stack([each, each[:, each.shape[1] // 2 :].sum(1)]) for each in vectors]
    theirs = RidgeCV(np.logspace(-2, 3, 11)).fit(vectors[0], (train.numbers - 1) / 4).predict(vectors[1])
    expected = 1 + 4 * theirs.clip(0, 1)
    np.testing.assert_allclose(kind.predict(result.model, job.dev.encoded, job.machine), expected, atol=1e-4)
    kind.save_model(result.model, tmp_path)
    copy_tokenizer(encoder, tmp_path)
    write_task_file(tmp_path, kind, {})
    found = bertline.load(tmp_path).predict(dev.texts, dev.text_pairs)
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("head", ["linear", "cosine"])
def test_the_loss_is_the_squared_distance_of_predictions_on_the_scale_from_0_to_1(
    task, encoder, tokenizer, machine, head
):
    kind = Regression(task(head=head), ())
    model = kind.new_model(encoder, HeadSettings(0.0, 0, "plain"))
    if head == "linear":
        with torch.no_grad():
            model.classifier.bias.fill_(0.5)  # the middle of the scale: nothing is clipped
    rows = alike_rows(24)
    encoded = kind.encode(rows, tokenizer)
    total, num_rows = 0.0, 0
    for batch in kind.training_batches(encoded, batch_size=5, seed=0):
        total += kind.loss(model, batch, LossOptions()).item() * len(batch["targets"])
        num_rows += len(batch["targets"])
    predictions = kind.predict(model, encoded, machine)
    assert num_rows == 24
    assert (predictions > 1.0).all() and (predictions < 5.0).all()
    assert total / 24 == pytest.approx((((predictions - rows.numbers) / 4) ** 2).mean(), rel=1e-4)
