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
