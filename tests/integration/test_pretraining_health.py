"""Alarms and failures in real trainings of a tiny model, each made to go wrong on purpose."""

import dataclasses
import math

import pytest
import torch

import pretraining_failures as failures
import pretraining_inputs
import pretraining_processes as processes
from bertline.foundation.files import read_json_lines
from bertline.pretraining.health import TrainingDivergedError
from bertline.pretraining.probes import ValidationProbe
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


# Fail

POISONED = (8 * 45, 8 * 52)  # what steps 45 to 51 take, counted from 0


@pytest.mark.parametrize(("saved_every", "noticed", "last_good"), [(20, 60, 40), (8, 48, 40)])
def test_a_failure_is_noticed_before_it_is_saved_and_again_by_the_next_start(
    make_job, patch, saved_every, noticed, last_good
):
    failures.poison(POISONED, patch=patch)
    job = make_job(pretrain__checkpoint_every_steps=saved_every)
    for _ in range(2):
        with pytest.raises(TrainingDivergedError, match=f"failed after step {noticed}: .*Lower optimizer.lr"):
            run_pretraining(job)
        assert (newest_state(job)["step"], list(trained_rows(job))) == (last_good, [20, 40])


def test_other_settings_start_from_the_last_good_weights(make_job, patch):
    with pytest.MonkeyPatch.context() as within:
        failures.poison(POISONED, patch=within.setattr)
        job = make_job()
        with pytest.raises(TrainingDivergedError, match=f"pretrain.start_from={job.latest_folder}"):
            run_pretraining(job)
    other = dataclasses.replace(make_job("other", optimizer__lr=1e-4), start_from_folder=job.latest_folder)
    run_pretraining(other)
    assert newest_state(other)["step"] == 120


def test_a_spike_is_an_alarm(make_job, patch):
    failures.corrupt_weights(70, patch=patch)
    job = make_job(objective__nsp_weight=0.0, health={"patience_steps": 1000})
    run_pretraining(job)
    assert kinds(job) == ["spike"]


def test_weights_that_are_no_numbers_are_never_saved(make_job, patch):
    take = ValidationProbe.probe

    def corrupting(probe, step):
        figures = take(probe, step)
        if step == 60:
            with torch.no_grad():
                next(probe.losses.parameters()).fill_(math.inf)
        return figures

    patch(ValidationProbe, "probe", corrupting)
    job = make_job()
    with pytest.raises(TrainingDivergedError, match="after step 60: there are weights"):
        run_pretraining(job)
    assert all(bool(tensor.isfinite().all()) for tensor in newest_state(job)["model"].values())


def test_two_processes_fail_together(inputs, tmp_path):
    """Only one of them sees the examples that fail."""
    changes = {**CHANGES, "pretrain__health": HEALTH}
    ranks = processes.start_ranks(inputs, [tmp_path, tmp_path], changes, before=failures.poisoned(POISONED))
    for rank in ranks:
        rank.join(timeout=600)
    assert [rank.exitcode for rank in ranks] == [1, 1]
    assert "pretraining failed after step 60" in processes.output_of(tmp_path).read_text()
    assert newest_state(pretrain_job(inputs, tmp_path, **changes))["step"] == 40
