from pathlib import Path
from typing import Any

import pytest

from bertline.evaluation.facts import TaskFacts
from bertline.evaluation.task_section import sweep_notes
from evaluation_inputs import make_result

SPACE = {
    "learning_rate": {"kind": "log_uniform", "low": 1e-4, "high": 1e-2},
    "batch_size": {"kind": "choice", "values": [16, 32]},
    "num_epochs": {"kind": "choice", "values": [2, 4, 8]},
}


def notes(trials: list[dict[str, Any]], best: dict[str, Any]) -> list[str]:
    result = make_result("library", full=False)
    result["arms"]["encoder"] |= {
        "trials": [{"number": number, "params": params} for number, params in enumerate(trials)],
        "best_params": best,
    }
    return sweep_notes(
        TaskFacts(name="library", manifest={}, result=result, folder=Path(), calibration={}, space=SPACE)
    )


def test_trials_of_one_point_are_told() -> None:
    trials = [{"learning_rate": 1e-3, "batch_size": 16}, {"learning_rate": 2e-3, "batch_size": 16}]
    assert notes([*trials, dict(reversed(trials[0].items()))], trials[0]) == [
        "The 3 trials tried only 2 different points: trials 0 and 2 are the same point."
    ]
    assert notes(trials, trials[0]) == []


@pytest.mark.parametrize(
    ("best", "says"),
    [
        ({"learning_rate": 1.1e-4}, "learning rate, 0.00011, is at the lower edge of the space (0.0001 to 0.01)"),
        ({"learning_rate": 9e-3}, "learning rate, 0.009, is at the upper edge of the space (0.0001 to 0.01)"),
        ({"learning_rate": 1e-3}, None),
        ({"num_epochs": 8}, "num epochs, 8, is at the upper edge of the space (2 to 8)"),
        ({"num_epochs": 4}, None),
        ({"batch_size": 32}, None),  # one of two values is always at an edge
        ({"dropout_prob": 0.5}, None),  # not in the space
    ],
)
def test_a_best_value_at_an_edge_is_told(best: dict[str, Any], says: str | None) -> None:
    found = notes([best], best)
    assert (found == []) if says is None else (len(found) == 1 and says in found[0])


def test_nothing_is_said_of_an_edge_where_nothing_was_tried() -> None:
    assert notes([], {"num_epochs": 8}) == []


def test_an_arm_is_named() -> None:
    result = make_result("library")
    result["arms"]["random_weights"]["best_params"] = {"num_epochs": 2}
    task = TaskFacts(name="library", manifest={}, result=result, folder=Path(), calibration={}, space=SPACE)
    assert sweep_notes(task) == [
        "The best num epochs of random weights, 2, is at the lower edge of the space (2 to 8); a better one may lie "
        "beyond it."
    ]
