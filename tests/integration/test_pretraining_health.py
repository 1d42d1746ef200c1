"""Alarms and rewinds in real trainings of a tiny model, each made to go wrong on purpose."""

import dataclasses
import math

import pytest
import torch

import pretraining_failures as failures
import pretraining_inputs
import pretraining_processes as processes
from bertline.foundation.files import read_json_lines
from bertline.pretraining.health import TrainingDivergedError
from bertline.pretraining.plan import SkippedSequences
from bertline.pretraining.probes import MaskPredictionProbe, ValidationProbe
from bertline.pretraining.run import run_pretraining
from pretraining_inputs import curve, newest_state, pretrain_job, write_inputs

HEALTH = {**pretraining_inputs.HEALTH, "patience_steps": 40, "nsp_margin": 0.05, "max_data_wait_fraction": 0.9}
CHANGES = {
    "pretrain__phases": [{"steps": 120, "max_length": 16, "global_batch_size": 8}],
    # Where rows are written, so that a failure is noticed by its row; one test below is about the other case.
    "pretrain__checkpoint_every_steps": 20,
    "pretrain__validate_every_steps": 60,
    "pretrain__mask_predictions": {"every_steps": 60, "num_guesses": 1, "sentences": ["the [MASK] sat."]},
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    write_inputs(folder, lengths=(16, 24), num_train=2000)
    return folder


@pytest.fixture
def make_job(inputs, tmp_path):
    def make(run: str = "run", *, health=None, **changes):
        health = {**HEALTH, **(health or {})}
        return pretrain_job(inputs, tmp_path / run, **{**CHANGES, **changes, "pretrain__health": health})

    return make


@pytest.fixture
def patch(monkeypatch):
    return monkeypatch.setattr


def kinds(job) -> list[str]:
    return [row["kind"] for row in read_json_lines(job.health_path)]


def trained_rows(job) -> dict[int, dict[str, float]]:
    return {step: metrics for step, metrics in curve(job) if "train/loss" in metrics}


def assert_same_end(left, right) -> None:
    """Weights, optimizer, place and curve of two finished runs are equal to the last bit."""
    one, other = newest_state(left), newest_state(right)
    assert (one["step"], one["place"]) == (other["step"], other["place"])
    for name in ("model", "optimizer"):
        torch.testing.assert_close(one[name], other[name], rtol=0, atol=0)
    assert curve(left) == curve(right)


# What is wrong is said


def test_weights_that_do_not_move_sit_at_chance(make_job, capsys):
    """The loss of weights at random is the logarithm of the number of tokens: 4.1; frequency alone gives 4.0."""
    job = make_job(optimizer__lr=1e-12)
    figures = run_pretraining(job)
    assert sorted(kinds(job)) == ["nsp_at_chance", "unigram_entropy"]
    alarm = next(row for row in read_json_lines(job.health_path) if row["kind"] == "unigram_entropy")
    assert alarm["step"] == 60  # the warm-up of 5 steps and the patience of 40 are over
    assert "(by frequency alone: 4.000)" in alarm["message"] and "optimizer.lr" in alarm["advice"]
    assert figures["num_alarms"] == 2
    assert f"step 60: {alarm['message']}. {alarm['advice']}" in capsys.readouterr().err
    assert (job.result_folder / "health.jsonl").read_bytes() == job.health_path.read_bytes()


# Skip


def test_a_step_that_is_not_finite_is_skipped_and_said(make_job, patch):
    failures.fail_at_step(30, patch=patch)
    job = make_job(pretrain__max_steps=60, health={"patience_steps": 1000})
    run_pretraining(job)
    assert [(row["kind"], row["step"]) for row in read_json_lines(job.health_path)] == [("skipped_steps", 40)]
    rows = trained_rows(job)
    assert [rows[step]["optim/skipped_steps"] for step in (20, 40, 60)] == [0.0, 1.0, 0.0]
    state = newest_state(job)
    assert all(bool(tensor.isfinite().all()) for tensor in state["model"].values())
    assert {int(each["step"]) for each in state["optimizer"]["state"].values()} == {59}
    assert all(math.isfinite(value) for _, metrics in curve(job) for value in metrics.values())
    assert state["rewinds"] == []


# Rewind

POISONED = (8 * 45, 8 * 52)  # what steps 45 to 51 take, counted from 0


def rewinds(job) -> list[dict]:
    return [row for row in read_json_lines(job.health_path) if "rewound_to" in row]


def test_examples_on_which_training_fails_are_skipped(make_job, patch, capsys):
    """Bitwise as a run that was told from the start to skip them."""
    with pytest.MonkeyPatch.context() as within:
        failures.poison(POISONED, patch=within.setattr)
        job = make_job()
        run_pretraining(job)
    (event,) = rewinds(job)
    jump = {"step": 40, "max_length": 16, "sequences": 20 * 8}
    assert (event["kind"], event["step"], event["rewound_to"], event["skipped"]) == ("non_finite", 60, 40, [jump])
    assert "rolls back to step 40 and skips 160 sequences (1 of at most 3 times)" in capsys.readouterr().err
    keys = [(step, key) for step, metrics in curve(job) for key in metrics]
    assert len(set(keys)) == len(keys)
    assert newest_state(job)["place"]["consumed"] == 8 * 140

    expected = make_job("expected")
    patch("bertline.pretraining.run.skipped_in", lambda rewinds: [SkippedSequences(**jump)])
    run_pretraining(expected)
    assert_same_end(job, expected)


@pytest.mark.parametrize(
    ("poisoned", "saved_every", "noticed", "rewound_to"),
    # The checkpoint of step 48 would hold steps that must not count; those to the end of the row are skipped.
    [(POISONED, 8, 48, 40), ((8 * 5, 8 * 12), 20, 20, None)],
    ids=["at a checkpoint", "before there is one"],
)
def test_a_failure_is_noticed_before_it_is_saved(make_job, patch, poisoned, saved_every, noticed, rewound_to):
    failures.poison(poisoned, patch=patch)
    job = make_job(pretrain__checkpoint_every_steps=saved_every)
    run_pretraining(job)
    (event,) = rewinds(job)
    assert (event["step"], event["rewound_to"]) == (noticed, rewound_to)
    assert event["skipped"] == [{"step": rewound_to or 0, "max_length": 16, "sequences": 20 * 8}]
    assert newest_state(job)["place"]["consumed"] == 8 * 140
    assert list(trained_rows(job)) == [20, 40, 60, 80, 100, 120]


@pytest.mark.parametrize("rewind", [False, True])
def test_a_spike_is_gone_back_from_where_that_is_asked_for(make_job, patch, rewind):
    failures.corrupt_weights(70, patch=patch)
    health = {"patience_steps": 1000, "rewind_on_spike": rewind}
    # The checkpoint of step 72 has the corrupted weights: it must not be the one that training rolls back to.
    job = make_job(objective__nsp_weight=0.0, health=health, pretrain__checkpoint_every_steps=8)
    run_pretraining(job)
    assert kinds(job) == ["spike"]
    assert [(row["step"], row["rewound_to"]) for row in rewinds(job)] == ([(80, 60)] if rewind else [])
    losses = [metrics["train/loss"] for metrics in trained_rows(job).values()]
    assert (max(losses) > 1.3 * losses[0]) is not rewind


def test_an_absurd_learning_rate_gives_up_after_a_bounded_number_of_times(make_job):
    job = make_job(optimizer__lr=1e30, schedule__num_warmup_steps=0)
    with pytest.raises(TrainingDivergedError) as caught:
        run_pretraining(job)
    message = str(caught.value)
    assert "pretrain.health.max_rewinds=3" in message and "Lower optimizer.lr" in message
    assert len(rewinds(job)) == 3
    with pytest.raises(TrainingDivergedError):
        run_pretraining(job)  # the same again: nothing on disk says that it went well
    health = dataclasses.replace(job.pretrain.health, max_rewinds=0)
    more = dataclasses.replace(job, pretrain=dataclasses.replace(job.pretrain, health=health))
    with pytest.raises(TrainingDivergedError, match="max_rewinds=0"):
        run_pretraining(more)  # another bound is no other training


def test_weights_that_are_no_numbers_are_never_saved(make_job, patch):
    """They are seen when step 45 is about to be saved, the best so far, before the row of step 60 is written."""
    take = ValidationProbe.probe
    done = []

    def corrupting(probe, step):
        figures = take(probe, step)
        if step == 45 and not done:
            done.append(step)
            with torch.no_grad():
                next(probe.losses.parameters()).fill_(math.inf)
        return figures

    patch(ValidationProbe, "probe", corrupting)
    job = make_job(pretrain__validate_every_steps=45, health={"max_skipped_steps": 20})
    run_pretraining(job)
    (event,) = rewinds(job)
    assert (event["step"], event["rewound_to"]) == (45, 40) and "weights" in event["message"]
    assert all(bool(tensor.isfinite().all()) for tensor in newest_state(job)["model"].values())


class KilledError(Exception):
    """The process is gone, as far as the disk can tell."""


@pytest.mark.parametrize(("every_steps", "moments"), [(20, (47,)), (20, (42, 58, 66)), (7, (62,)), (7, (42, 58, 66))])
def test_killed_at_any_moment_around_a_rewind_it_ends_as_if_left_alone(make_job, patch, moments, every_steps):
    failures.poison(POISONED, patch=patch)
    mask_predictions = {"every_steps": 1, "num_guesses": 1, "sentences": ["the [MASK] sat."]}
    changes = {"pretrain__mask_predictions": mask_predictions, "pretrain__checkpoint_every_steps": every_steps}
    alone = make_job("alone", **changes)
    run_pretraining(alone)
    assert len(rewinds(alone)) == 1

    waiting = list(moments)
    look = MaskPredictionProbe.probe

    def dying(probe, step):
        if waiting and step >= waiting[0]:
            waiting.pop(0)
            raise KilledError
        return look(probe, step)

    patch(MaskPredictionProbe, "probe", dying)
    killed = make_job("killed", **changes)
    for _ in moments:
        with pytest.raises(KilledError):
            run_pretraining(killed)
    run_pretraining(killed)
    assert not waiting
    assert_same_end(alone, killed)
    assert read_json_lines(killed.health_path) == read_json_lines(alone.health_path)


def test_two_processes_roll_back_together(inputs, tmp_path):
    """Only one of them sees the examples that fail; both give up the same steps, and both their bound holds."""
    changes = {**CHANGES, "pretrain__health": HEALTH}
    alone, together = tmp_path / "alone", tmp_path / "together"
    poison = failures.poisoned(POISONED)
    both = processes.start_ranks(inputs, [together, together], changes, before=poison)
    processes.finish(processes.start(inputs, alone, changes, before=poison), *both)
    one, other = (pretrain_job(inputs, folder, **changes) for folder in (alone, together))
    assert newest_state(other)["place"] == newest_state(one)["place"]
    assert rewinds(other) == rewinds(one) and len(rewinds(one)) == 1
    assert [step for step, _ in curve(other)] == [step for step, _ in curve(one)]
