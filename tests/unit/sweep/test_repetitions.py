"""The best configurations over seeds: which of them wins."""

from __future__ import annotations

import pytest

from bertline.foundation.errors import MachineError
from bertline.foundation.files import write_json
from bertline.sweep.bench import plan_of
from bertline.sweep.repetitions import Repetition, candidates_over_seeds, winners
from bertline.tasks.config import ChoiceSpace

RATES = ChoiceSpace(kind="choice", values=(1e-3, 2e-3))


@pytest.fixture
def plan(new_job):
    return lambda **changes: plan_of(new_job(**changes))


def test_random_weights_have_seeds_of_their_own_number(plan):
    points = {"encoder": [{"learning_rate": 1e-2}], "random_weights": [{"learning_rate": 2e-2}]}
    few = candidates_over_seeds(plan(num_seeds=3, random_weights_seeds=2), points)
    assert [(one.arm, one.seed) for one in few] == [
        *(("encoder", seed) for seed in range(3)),
        *(("random_weights", seed) for seed in range(2)),
    ]
    assert len(candidates_over_seeds(plan(num_seeds=3), points)) == 6
    assert len(candidates_over_seeds(plan(num_seeds=1, random_weights_seeds=2), points)) == 2


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
    ("configurations", "winner", "seeds"),
    [
        ([[0.5, 0.5], [0.7, 0.6]], 1, [0, 1]),
        ([[0.6, 0.6], [0.6, 0.6]], 0, [0, 1]),
        ([[0.9, None], [0.5, 0.4]], 1, [0, 1]),  # fewer diverged seeds count for more than the mean
        ([[None, 0.5], [0.8, None]], 1, [0]),
        ([[None, None], [None, 0.1]], 1, [1]),
    ],
)
def test_the_winner_has_the_fewest_diverged_seeds_and_then_the_best_mean(plan, configurations, winner, seeds):
    plan = plan(random_weights_baseline="never")
    made = repeated(plan, encoder=configurations)
    chosen = winners(plan, made)["encoder"]
    assert {one.candidate for one in chosen} == {winner}
    assert [one.seed for one in chosen] == seeds


def test_an_arm_that_always_diverges_has_no_winner_and_without_the_encoder_s_there_is_no_result(plan):
    plan = plan(random_weights_baseline="always")
    assert set(winners(plan, repeated(plan, encoder=[[0.5]], random_weights=[[None], [None]]))) == {"encoder"}
    with pytest.raises(
        MachineError, match=r"the encoder diverged with every seed.* Lower sweep\.space\.learning_rate\."
    ):
        winners(plan, repeated(plan, encoder=[[None, None]], random_weights=[[0.5]]))
