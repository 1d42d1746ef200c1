"""What a reader of a sweep has to know before believing its choice: repeated points, a best value at an edge."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from bertline.evaluation.facts import TaskFacts
from bertline.evaluation.formatting import listing, number_of, setting

_FEWEST_CHOICES = 3
"""Of two values, the best one is always at an edge."""
_NEAR = 0.1
"""Fraction of a continuous range, on its logarithmic scale, that counts as its edge."""


def sweep_notes(task: TaskFacts) -> list[str]:
    """Return sentences on the trials of each arm; none if there is nothing to admit."""
    titles = task.titles()
    notes = []
    for name, arm in task.arms().items():
        who = "" if name == "encoder" else f" of {titles[name]}"
        notes += _repeated(arm["trials"], who)
        notes += _edges(arm, task.space, who)
    return notes


def _repeated(trials: list[dict[str, Any]], who: str) -> list[str]:
    """Return a sentence if several trials had the same hyperparameters."""
    of_point: dict[str, list[int]] = {}
    for trial in trials:
        of_point.setdefault(repr(sorted(trial["params"].items())), []).append(trial["number"])
    groups = [listing([str(number) for number in numbers]) for numbers in of_point.values() if len(numbers) > 1]
    if not groups:
        return []
    same = "; ".join(f"trials {group} are the same point" for group in groups)
    return [
        f"The {number_of(len(trials), 'trial')}{who} tried only {number_of(len(of_point), 'different point')}: {same}."
    ]


def _edges(arm: Mapping[str, Any], space: Mapping[str, Mapping[str, Any]], who: str) -> Iterator[str]:
    """Yield a sentence for each best value at an edge of the space: a better one may lie beyond it."""
    for name, value in sorted(arm["best_params"].items()):
        found = _edge(value, space.get(name)) if arm["trials"] else None
        if found is not None:
            side, low, high = found
            yield (
                f"The best {name.replace('_', ' ')}{who}, {setting(value)}, is at the {side} edge of the space "
                f"({setting(low)} to {setting(high)}); a better one may lie beyond it."
            )


def _edge(value: Any, space: Mapping[str, Any] | None) -> tuple[str, float, float] | None:
    """Return the side of the edge and the ends of the space; None inside, or if the space is not known."""
    if space is None or not isinstance(value, int | float):
        return None
    if space["kind"] == "log_uniform":
        low, high = space["low"], space["high"]
        place = math.log(value / low) / (math.log(high / low) or 1.0)
        return _side(place <= _NEAR, place >= 1 - _NEAR, low, high)
    choices = sorted(space.get("values", ()))
    if len(choices) < _FEWEST_CHOICES:
        return None
    return _side(value <= choices[0], value >= choices[-1], choices[0], choices[-1])


def _side(is_low: bool, is_high: bool, low: float, high: float) -> tuple[str, float, float] | None:
    return ("lower", low, high) if is_low else ("upper", low, high) if is_high else None
