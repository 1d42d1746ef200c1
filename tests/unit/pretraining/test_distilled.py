"""Distillation in pretraining: losses, the start of the student, exact resumption, and teachers that cannot teach."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bertline.foundation.errors import ConfigError
from bertline.modeling.checkpoint import Checkpoint
from bertline.modeling.losses import cosine_distance_sum, soft_target_loss_sum
from bertline.modeling.weight_files import read_weights
from bertline.pretraining.data import expanded
from bertline.pretraining.module import PreTrainingLosses
from bertline.pretraining.plan import RowLayout
from bertline.pretraining.probes import ValidationProbe
from bertline.pretraining.run import run_pretraining
from bertline.pretraining.start import build_model
from bertline.tokenization.tokenizer import Tokenizer
from pretraining_inputs import (
    NO_DROPOUT,
    assert_neither_rows_nor_ranks_change_a_sum,
    assert_resumes_to_the_same_bits,
    assert_same_weights,
    pretrain_job,
    steps_of,
    weights,
)
from tiny import load_masked_lm, machine

LOGITS = st.lists(st.floats(-8, 8, width=32), min_size=3, max_size=3)


@pytest.fixture(scope="module")
def teacher(sentences, tmp_path_factory):
    """The folder of a trained encoder of 4 layers."""
    job = pretrain_job(
        sentences, tmp_path_factory.mktemp("teacher"), objective={"kind": "mlm"}, model__num_hidden_layers=4
    )
    run_pretraining(job)
    return job.result_folder


def objective(folder, **changes) -> dict:
    weights_of_terms = {"soft_weight": 5.0, "mlm_weight": 2.0, "cosine_weight": 1.0}
    fixed = {"kind": "distilled", "teacher": str(folder), "temperature": 2.0, "start_from_teacher": True}
    return {**fixed, **weights_of_terms, **changes}


@pytest.fixture
def make(make_mlm, teacher):
    """A maker of jobs of a student of 2 layers; `objective` has changes of the objective."""
    return lambda run="run", objective_=None, **changes: make_mlm(
        run, objective=objective(teacher, **(objective_ or {})), **changes
    )


@settings(max_examples=60)
@given(
    targets=st.lists(st.tuples(LOGITS, LOGITS, st.booleans()), min_size=1, max_size=6), temperature=st.floats(0.5, 4)
)
def test_the_soft_loss_is_the_divergence_from_the_teacher_in_a_plain_loop(targets, temperature):
    expected = 0.0
    for ours, theirs, is_used in targets:
        sums = [sum(math.exp(logit / temperature) for logit in logits) for logits in (ours, theirs)]
        for our, their in zip(ours, theirs, strict=True):
            log_ours, log_theirs = our / temperature - math.log(sums[0]), their / temperature - math.log(sums[1])
            expected += is_used * math.exp(log_theirs) * (log_theirs - log_ours) * temperature**2
    ours, theirs, used = (torch.tensor(each) for each in zip(*targets, strict=True))
    labels = torch.where(used, 1, -100)
    found = soft_target_loss_sum(ours, theirs, labels, temperature=temperature)
    assert float(found) == pytest.approx(expected, rel=1e-4, abs=1e-4)


@settings(max_examples=40)
@given(pairs=st.lists(st.tuples(LOGITS, LOGITS, st.booleans()), min_size=1, max_size=6))
def test_the_distance_of_states_is_one_less_their_cosine_in_a_plain_loop(pairs):
    expected = 0.0
    for a, b, is_real in pairs:
        lengths = math.hypot(*a) * math.hypot(*b)
        if lengths < 1e-3:
            return  # no direction
        expected += is_real * (1 - sum(x * y for x, y in zip(a, b, strict=True)) / lengths)
    ours, theirs, real = (torch.tensor(each) for each in zip(*pairs, strict=True))
    assert float(cosine_distance_sum(ours, theirs, real)) == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_neither_rows_nor_ranks_change_a_sum(make):
    job = make(objective_={"start_from_teacher": False})
    layouts = RowLayout(packed=False, rows=3), RowLayout(packed=True, rows=None)
    assert_neither_rows_nor_ranks_change_a_sum(job, *layouts)


def test_a_student_of_all_layers_starts_as_its_teacher_and_without_distance(make, teacher):
    job = make(model__num_hidden_layers=4, **NO_DROPOUT)
    model = build_model(job, Tokenizer.load(job.tokenizer_folder), machine())
    assert_same_weights(dict(model.state_dict()), dict(load_masked_lm(teacher).state_dict()))
    batch = expanded(steps_of(job, RowLayout(packed=False, rows=None))[0]["micro_batches"][0])
    sums = PreTrainingLosses(model.eval().requires_grad_(False), job.objective)(batch)
    assert abs(float(sums["soft_loss"])) < 1e-3 and abs(float(sums["cosine_loss"])) < 1e-3
    assert sums["teacher_correct"] == sums["mlm_correct"]


def test_a_student_takes_the_first_and_the_last_layer(make, teacher):
    model = build_model(make(), Tokenizer.load(make().tokenizer_folder), machine())
    theirs, ours = load_masked_lm(teacher).bert.layers, model.bert.layers
    for taken, layer in zip((0, 3), ours, strict=True):
        assert_same_weights(dict(layer.state_dict()), dict(theirs[taken].state_dict()))
    drawn = build_model(
        make(objective_={"start_from_teacher": False}), Tokenizer.load(make().tokenizer_folder), machine()
    )
    assert not torch.equal(drawn.bert.word_embeddings, model.bert.word_embeddings)


def test_a_stopped_training_ends_as_an_undisturbed_one_and_the_teacher_is_in_no_file(make, teacher, monkeypatch):
    before = read_weights(teacher, with_output=True)
    figures = assert_resumes_to_the_same_bits(make("alone"), make("stopped"), ValidationProbe, 10, monkeypatch)
    assert {"val/soft_loss", "val/cosine_loss", "val/teacher_accuracy"} <= figures.keys()
    assert not [name for name in weights(make("alone")) if "teacher" in name]
    assert len(Checkpoint.open(make("alone").result_folder).shapes) < len(Checkpoint.open(teacher).shapes)
    assert all(torch.equal(weight, read_weights(teacher, with_output=True)[name]) for name, weight in before.items())


def test_a_student_comes_nearer_to_its_teacher_than_one_that_learns_alone(make):
    phases = [{"steps": 100, "max_length": 16, "global_batch_size": 16}]
    settings = {"pretrain__phases": phases, **NO_DROPOUT}
    taught = run_pretraining(make("taught", objective_={"start_from_teacher": False}, **settings))
    alone = run_pretraining(
        make("alone", objective_={"start_from_teacher": False, "soft_weight": 1e-9, "cosine_weight": 1e-9}, **settings)
    )
    assert taught["val/soft_loss"] < alone["val/soft_loss"] / 2
    assert taught["val/cosine_loss"] < alone["val/cosine_loss"] / 2


def test_a_teacher_that_cannot_teach_is_refused(make, teacher, pretraining, tmp_path):
    with pytest.raises(ConfigError, match=r"more layers \(5\) than it \(4\)"):
        run_pretraining(make(model__num_hidden_layers=5))
    with pytest.raises(ConfigError, match=r"hidden size is 16, the student's 32.*cosine_weight=0"):
        run_pretraining(make(model__hidden_size=32))
    wider = make(objective_={"cosine_weight": 0.0}, model__hidden_size=32)
    with pytest.raises(ConfigError, match="start_from_teacher: bert.embeddings.*32.*16"):
        run_pretraining(wider)
    run_pretraining(
        dataclasses.replace(
            wider,
            objective=dataclasses.replace(wider.objective, start_from_teacher=False),
            pretrain=dataclasses.replace(wider.pretrain, max_steps=2),
        )
    )
    vocab = (teacher / "vocab.txt").read_text().splitlines()
    other = tmp_path / "other"
    other.mkdir()
    for path in teacher.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    (other / "tokenizer.json").unlink()
    (other / "vocab.txt").write_text("\n".join([*vocab[:-2], vocab[-1], vocab[-2]]) + "\n")
    with pytest.raises(ConfigError, match="its vocabulary is another one"):
        run_pretraining(make("other", objective_={"teacher": str(other)}))
