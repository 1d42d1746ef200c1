"""What a student learns from its teacher: the losses of soft targets, and which target belongs to which row."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import finished_tasks
import tiny
from bertline.encoding.sequences import INDICES, Epochs
from bertline.finetuning.finetune import fine_tune
from bertline.finetuning.job import TaskSplit
from bertline.kinds.base import SOFT_TARGETS, UNLABELLED, LossOptions, distilled_batches
from bertline.kinds.classification import Classification
from bertline.modeling.losses import sigmoid_divergence, softmax_divergence
from bertline.tokenization.tokenizer import Tokenizer

KINDS = sorted(finished_tasks.KINDS)
LOGITS = st.lists(st.floats(-8, 8, width=32), min_size=3, max_size=3)
TEMPERATURES = st.floats(0.5, 8)


@given(LOGITS, LOGITS, TEMPERATURES)
def test_the_divergence_is_that_of_a_plain_loop(student, teacher, temperature):
    def probabilities(logits):
        weights = [math.exp(each / temperature) for each in logits]
        return [each / sum(weights) for each in weights]

    pairs = zip(probabilities(teacher), probabilities(student), strict=True)
    expected = temperature**2 * sum(p * math.log(p / q) for p, q in pairs)
    found = softmax_divergence(torch.tensor(student), torch.tensor(teacher), temperature)
    assert found.item() == pytest.approx(expected, rel=1e-3, abs=1e-3)


@given(st.floats(-8, 8, width=32), st.floats(-8, 8, width=32), TEMPERATURES)
def test_an_independent_label_has_two_outcomes(student, teacher, temperature):
    p, q = (1 / (1 + math.exp(-each / temperature)) for each in (teacher, student))
    expected = temperature**2 * (p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q)))
    found = sigmoid_divergence(torch.tensor([student]), torch.tensor([teacher]), temperature)
    assert found.item() == pytest.approx(expected, rel=1e-3, abs=1e-3)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished model of a kind, made once."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = finished_tasks.finish(name, tmp_path_factory.mktemp(name))
        return made[name]

    return get


def batches_of(one):
    encoded = one.kind.encode(one.rows, Tokenizer.load(one.folder))
    soft = one.kind.soft_targets(one.model, encoded, tiny.machine())
    return distilled_batches([(one.kind.training_batches(encoded, batch_size=3, seed=1), soft)], seed=1)


@pytest.mark.parametrize("name", KINDS)
def test_a_student_that_equals_its_teacher_has_nothing_to_learn_from_it(finished, name):
    one = finished(name)
    soft_only = LossOptions(soft_weight=1.0, soft_temperature=2.0)
    for _ in range(2):  # epochs
        for batch in batches_of(one):
            loss = one.kind.loss(one.model.eval(), batch, soft_only)
            assert loss.item() == pytest.approx(0, abs=1e-6)
            batch[SOFT_TARGETS] = -batch[SOFT_TARGETS]  # a teacher that says the contrary
            assert one.kind.loss(one.model, batch, soft_only).item() > 1e-4


@pytest.mark.parametrize("name", KINDS)
def test_the_loss_is_the_weighted_sum_and_of_rows_without_labels_the_soft_part_alone(finished, name):
    one = finished(name)
    batch = next(iter(batches_of(one)))
    batch[SOFT_TARGETS] = batch[SOFT_TARGETS] + torch.linspace(0, 1, batch[SOFT_TARGETS].numel()).view_as(
        batch[SOFT_TARGETS]
    )
    options = LossOptions(soft_weight=0.3, soft_temperature=1.5)

    def loss(**changes):
        return one.kind.loss(one.model, batch, replace(options, **changes))

    hard, soft = loss(soft_weight=0.0), loss(soft_weight=1.0)
    torch.testing.assert_close(loss(), 0.7 * hard + 0.3 * soft)
    plain = {name: value for name, value in batch.items() if name != SOFT_TARGETS}
    assert torch.equal(one.kind.loss(one.model, plain, options), hard)
    batch[UNLABELLED] = torch.ones(())
    torch.testing.assert_close(loss(), 0.3 * soft)


def test_vectors_of_another_size_teach_which_documents_are_near(finished):
    one = finished("retrieval")
    one = replace(one, rows=replace(one.rows, relevances=[[1, 1]] * len(one.rows)))  # two documents
    options, losses = LossOptions(soft_weight=1.0, soft_temperature=1.0), []
    for batch in batches_of(one):
        wider = torch.cat([batch[SOFT_TARGETS], torch.zeros_like(batch[SOFT_TARGETS])], dim=1)
        assert one.kind.loss(one.model, {**batch, SOFT_TARGETS: wider}, options).item() == pytest.approx(0, abs=1e-5)
        wider[: -len(batch["document_input_ids"])] *= -1  # near is far
        losses.append(one.kind.loss(one.model, {**batch, SOFT_TARGETS: wider}, options).item())
    assert max(losses) > 1e-3


def test_an_epoch_has_every_batch_of_both_parts_with_its_own_targets():
    def part(first, number):
        starts = range(first, first + 2 * number, 2)
        return Epochs(number, 1, lambda _: ({INDICES: torch.arange(start, start + 2) - first} for start in starts))

    soft = np.arange(16, dtype=np.float32)
    batches = distilled_batches([(part(0, 5), soft[:10]), (part(10, 3), soft[10:])], seed=3)
    epochs = [[(UNLABELLED in batch, batch[SOFT_TARGETS].tolist()) for batch in batches] for _ in range(2)]
    assert len(batches) == 8
    assert epochs[0] != epochs[1]
    assert (
        sorted(epochs[0])
        == sorted(epochs[1])
        == [
            *((False, [start, start + 1]) for start in range(0, 10, 2)),
            *((True, [start, start + 1]) for start in range(10, 16, 2)),
        ]
    )


def test_rows_without_labels_teach_what_labels_do_not(encoder, inputs, job_of):
    kind = Classification(inputs.task(max_length=24), inputs.LABELS)
    dev = inputs.learnable_rows(64, seed=1)
    teacher = fine_tune(job_of(kind, encoder, inputs.learnable_rows(128), dev, num_epochs=6)).model
    few, wrong = inputs.learnable_rows(8, seed=2), inputs.learnable_rows(120, seed=3)
    wrong = replace(wrong, labels=np.zeros_like(wrong.labels))  # which must not be read
    run = job_of(kind, encoder, few, dev, soft_weight=0.9, num_epochs=6)

    def split(rows):
        encoded = kind.encode(rows, Tokenizer.load(encoder))
        return TaskSplit(rows=rows, encoded=encoded, soft_targets=kind.soft_targets(teacher, encoded, run.machine))

    distilled = replace(run, train=split(few), unlabelled=split(wrong))
    with_teacher, alone = fine_tune(distilled), fine_tune(run)
    assert with_teacher.dev.scores["accuracy"] > max(0.9, alone.dev.scores["accuracy"])
    again = fine_tune(distilled).model.state_dict()
    assert all(torch.equal(value, again[name]) for name, value in with_teacher.model.state_dict().items())
