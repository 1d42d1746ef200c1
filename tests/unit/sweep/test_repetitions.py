"""The best configurations over seeds: which of them wins."""

from __future__ import annotations

import dataclasses
import json

import pytest

from bertline.finetuning.progress import DivergedError
from bertline.foundation.errors import MachineError
from bertline.foundation.files import write_json
from bertline.foundation.seeds import seed_for
from bertline.sweep import repetitions, trials
from bertline.sweep.job import planned
from bertline.sweep.repetitions import Repetition, candidates_over_seeds, num_diverged_seeds, winners
from bertline.sweep.run import run_sweep


@pytest.fixture
def plan(inputs, input_folder, tmp_path):
    return lambda **changes: planned(inputs.sweep_job(input_folder, tmp_path / "run", sweep=inputs.sweep(**changes)))


def test_random_weights_have_seeds_of_their_own_number(plan):
    points = {"encoder": [{"learning_rate": 1e-2}], "random_weights": [{"learning_rate": 2e-2}]}
    few = candidates_over_seeds(plan(num_seeds=3, random_weights_seeds=2), points)
    assert [(one.arm, one.seed) for one in few] == [
        *(("encoder", seed) for seed in range(3)),
        *(("random_weights", seed) for seed in range(2)),
    ]
    assert len(candidates_over_seeds(plan(num_seeds=3), points)) == 6
    assert len(candidates_over_seeds(plan(num_seeds=1, random_weights_seeds=2), points)) == 2


def test_random_weights_have_at_least_one_seed(inputs):
    with pytest.raises(ValueError, match="random_weights_seeds must be at least 1"):
        inputs.sweep(random_weights_seeds=0)


def repeated(plan, **dev):
    """Repetitions of each arm with these dev scores, a list for each configuration; None: the seed diverged."""
    made = []
    for arm, configurations in dev.items():
        for candidate, scores in enumerate(configurations):
            for seed, score in enumerate(scores):
                one = Repetition(arm, {"learning_rate": candidate}, "seed", len(made), candidate, seed, None)
                outcome = {"diverged": True} if score is None else {"diverged": False, "dev": {"accuracy": score}}
                write_json(one.folder(plan.job) / "outcome.json", outcome)
                made.append(one)
    return made


@pytest.mark.parametrize(
    ("configurations", "winner", "seeds", "num_diverged"),
    [
        ([[0.5, 0.5], [0.7, 0.6]], 1, [0, 1], 0),
        ([[0.6, 0.6], [0.6, 0.6]], 0, [0, 1], 0),
        ([[0.9, None], [0.5, 0.4]], 1, [0, 1], 0),  # fewer diverged seeds count for more than the mean
        ([[None, 0.5], [0.8, None]], 1, [0], 1),
        ([[None, None], [None, 0.1]], 1, [1], 1),
    ],
)
def test_the_winner_has_the_fewest_diverged_seeds_and_then_the_best_mean(
    plan, configurations, winner, seeds, num_diverged
):
    plan = plan(random_weights_baseline="never")
    made = repeated(plan, encoder=configurations)
    chosen = winners(plan, made)["encoder"]
    assert {one.candidate for one in chosen} == {winner}
    assert [one.seed for one in chosen] == seeds
    assert num_diverged_seeds(plan.job, chosen, made) == num_diverged


def test_an_arm_that_always_diverges_has_no_winner_and_without_the_encoder_s_there_is_no_result(plan):
    plan = plan(random_weights_baseline="always")
    assert set(winners(plan, repeated(plan, encoder=[[0.5]], random_weights=[[None], [None]]))) == {"encoder"}
    with pytest.raises(MachineError, match="the encoder diverged with every seed"):
        winners(plan, repeated(plan, encoder=[[None, None]], random_weights=[[0.5]]))


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
        monkeypatch.setattr(trials, "fine_tune", diverging(train, lambda run: run.encoder == "random"))
    figures = run_sweep(job, in_process=True)
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
    assert run_sweep(job, in_process=True) == figures  # and nothing of it is run again


def test_a_trial_whose_score_is_not_a_number_fails_and_the_sweep_continues(inputs, input_folder, tmp_path, monkeypatch):
    job = inputs.sweep_job(input_folder, tmp_path / "run", sweep=inputs.sweep(num_trials=1, num_seeds=1))
    train = trials.fine_tune

    def without_score(run, **options):
        outcome = train(run, **options)
        scores = {name: float("nan") for name in outcome.dev_scores} if run.encoder == "random" else outcome.dev_scores
        return dataclasses.replace(outcome, dev_scores=scores)

    monkeypatch.setattr(trials, "fine_tune", without_score)
    run_sweep(job, in_process=True)
    trial_events = [json.loads(line) for line in (job.run_folder / "events.jsonl").read_text().splitlines()]
    states = {(event["arm"], event["state"]) for event in trial_events if event["kind"] == "trial"}
    assert states == {("encoder", "COMPLETE"), ("random_weights", "FAIL")}
