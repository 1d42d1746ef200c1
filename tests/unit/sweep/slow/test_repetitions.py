"""The best configurations over seeds: which of them wins."""

from __future__ import annotations

import dataclasses
import json

import pytest

from bertline.finetuning.finetune import DivergedError
from bertline.foundation.seeds import seed_for
from bertline.sweep import repetitions, workers
from bertline.sweep.run import run_sweep


def diverging(function, diverges):
    def run(job, **options):
        if diverges(job):
            raise DivergedError("the loss of step 3 is nan")
        return function(job, **options)

    return run


@pytest.mark.parametrize("trials_diverge_too", [False, True])
def test_a_sweep_outlives_a_diverged_seed_and_an_arm_that_always_diverges(
    inputs, input_folder, tmp_path, monkeypatch, capsys, trials_diverge_too
):
    job = inputs.sweep_job(
        input_folder,
        tmp_path / "run",
        sweep=inputs.sweep(num_trials=1, num_seeds=3, fine_tuning=inputs.fine_tuning(num_epochs=6)),
        task=inputs.task(label_efficiency_rows=(32,)),
    )
    unlucky = seed_for(job.sweep.seed, "repetition", 1)
    train = repetitions.fine_tune
    random_or_unlucky = diverging(train, lambda run: run.encoder == "random" or run.seed == unlucky)
    monkeypatch.setattr(repetitions, "fine_tune", random_or_unlucky)
    if trials_diverge_too:
        monkeypatch.setattr(workers, "fine_tune", diverging(train, lambda run: run.encoder == "random"))
    figures = run_sweep(job)
    result = json.loads((job.run_folder / "result" / "result.json").read_text())
    arm = result["arms"]["encoder"]
    assert set(result["arms"]) == {"encoder"}
    assert [seed["seed"] for seed in arm["seeds"]] == [0, 2]
    assert (result["num_seeds"], arm["num_diverged"], arm["num_degenerate"]) == (2, 1, 1)
    assert [candidate["num_diverged"] for candidate in arm["candidates"]] == [1]
    assert figures["test/accuracy_mean"] == arm["test_mean"]
    assert set(result["comparisons"]) == set(result["baselines"])
    assert result["comparison"] is None
    assert "Every run of the encoder from random weights diverged or failed" in result["note"]
    assert {row["arm"] for row in result["label_efficiency"]} == {"encoder", *result["baselines"]}
    assert "(diverged seeds left out: 1) over 2 seeds" in capsys.readouterr().out
    states = [json.loads(line)["state"] for line in (job.run_folder / "events.jsonl").read_text().splitlines()]
    # The unlucky seed; and of random weights a trial for each number of epochs, or each of the three seeds.
    assert states.count("FAIL") == 1 + 3
    assert run_sweep(job) == figures  # and nothing of it is run again


def test_a_trial_whose_score_is_not_a_number_fails_and_the_sweep_continues(inputs, input_folder, tmp_path, monkeypatch):
    job = inputs.sweep_job(input_folder, tmp_path / "run", sweep=inputs.sweep(num_trials=1, num_seeds=1))
    train = workers.fine_tune

    def without_score(run, **options):
        outcome = train(run, **options)
        scores = {name: float("nan") for name in outcome.dev_scores} if run.encoder == "random" else outcome.dev_scores
        return dataclasses.replace(outcome, dev_scores=scores)

    monkeypatch.setattr(workers, "fine_tune", without_score)
    run_sweep(job)
    trial_events = [json.loads(line) for line in (job.run_folder / "events.jsonl").read_text().splitlines()]
    states = {(event["arm"], event["state"]) for event in trial_events if event["kind"] == "trial"}
    assert states == {("encoder", "COMPLETE"), ("random_weights", "FAIL")}
