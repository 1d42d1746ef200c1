"""What is registered: how MLflow loads an exported folder, and whether it becomes the champion. Imports no MLflow.

A new version of a task's model becomes champion if it beats the current one beyond noise, on the same dev rows. Test is
read only once: choosing by test scores would turn it into a second dev set. If scores are not comparable, the champion
stays, and users move the alias by hand (`promote`).
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from bertline.foundation.formats import signed, with_spread
from bertline.foundation.verdicts import NOISE_UNKNOWN, Measured, compared

_BY_HAND = 'bertline promote task_name=TASK version=N reason="WHY"'


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Standing:
    """Scores of a version, and the data and metric that they belong to."""

    alias: str
    data_hash: str
    """Hash of the task's rows; scores on different rows are not comparable."""
    metric: str
    """Name of the metric; higher is better."""
    dev: Measured
    """Scores on dev over the seeds, and the contributions of blocks of dev rows."""
    test_score: float
    """Mean test score over the seeds, for display only."""
    test_std: float | None
    """Standard deviation of the test score over the seeds; None for a single seed."""

    def tags(self) -> dict[str, str]:
        """Return tags for the version, for display."""
        dev_std = statistics.stdev(self.dev.scores) if len(self.dev.scores) > 1 else None
        scores = {"dev_std": dev_std, "test_score": self.test_score, "test_std": self.test_std}
        return {
            "data_hash": self.data_hash,
            "metric": self.metric,
            "dev_score": str(self.dev.mean),
            **{name: str(value) for name, value in scores.items() if value is not None},
        }

    def to_json(self) -> dict[str, Any]:
        """Return the data with which later versions are compared."""
        return {"data_hash": self.data_hash, "metric": self.metric, "dev": self.dev.to_json()}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Serving:
    """How MLflow loads a folder, and the table that goes in and out."""

    loader_module: str
    """Module with MLflow's function `_load_pyfunc(path, model_config)`; nothing is pickled."""
    inputs: Mapping[str, str]
    """What each column holds: `text`, `texts` (a list) or `text or texts`. All are required."""
    outputs: pa.Schema
    params: Mapping[str, float]
    """Parameters of a request with their defaults."""
    settings: Mapping[str, Any]
    """Settings of the loader with their defaults."""
    example: Mapping[str, Any]
    """A row of inputs, made up: it goes to every tracking server, so it must not be a user's."""
    packages: tuple[str, ...]
    """Packages that the loader needs; their installed versions are pinned."""
    dataset: tuple[str, str] | None = None
    """Name of the task and path of its rows, on which the scores were measured; None without scores."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Registration:
    """How a folder is registered as a version of a model."""

    alias: str
    """Alias that always moves to this version."""
    tags: Mapping[str, str]
    """Tags of a new version."""
    serving: Serving
    standing: Standing | None = None
    """Scores of the version. The alias of the standing moves to this version if no version has it or this version beats
    the one that has it."""


class Decision(NamedTuple):
    """Decision on whether a version becomes the champion."""

    wins: bool
    reason: str
    """Reason for the log, phrased to follow the version's name."""


def challenged(new: Standing, champion: Mapping[str, Any] | None) -> Decision:
    """Compare a new version with the champion on dev. It wins if it is better beyond noise or there is no champion.

    Args:
        champion: `Standing.to_json` of the champion; empty if unknown, None if there is no champion.
    """
    shown = f"{new.metric} on dev {new.dev.mean:.4f}; on test {with_spread(new.test_score, new.test_std, digits=4)}"
    if champion is None:
        return Decision(True, f"is the first champion ({shown})")
    reason = _cannot_be_compared(new, champion)
    comparison = None if reason else compared(new.dev, Measured.from_json(champion["dev"]))
    if comparison is None or comparison.interval is None or comparison.smallest_visible is None:
        if comparison is not None:
            reason = f"{signed(comparison.difference, digits=4)} on dev, and {NOISE_UNKNOWN}"
        return Decision(
            False,
            f"does not take the title: {reason}. The alias {new.alias!r} stays where it is. To move it by hand: "
            f"{_BY_HAND}",
        )
    low, high = comparison.interval
    difference, low_shown, high_shown = (signed(value, digits=4) for value in (comparison.difference, low, high))
    details = f"{difference} on dev, 95 % interval {low_shown} to {high_shown}; {shown}"
    match comparison.verdict:
        case "better":
            return Decision(True, f"beats the champion beyond noise ({details})")
        case "worse":
            return Decision(False, f"is worse than the champion beyond noise ({details})")
        case _:
            seen = f"a difference of {comparison.smallest_visible:.4f} would have been seen"
            reason = f"is not shown to be better than the champion, which stays: {comparison.cause} ({details}; {seen})"
            return Decision(False, reason)


def _cannot_be_compared(new: Standing, champion: Mapping[str, Any]) -> str | None:
    """Return why the two scores are not comparable; None if they are."""
    if "dev" not in champion:
        return "no scores of the champion on dev are known"
    if champion.get("data_hash") != new.data_hash:
        return "the champion was scored on other rows (the task's data changed)"
    if champion.get("metric") != new.metric:
        return f"the champion was scored by {champion.get('metric')}, this version by {new.metric}"
    if Measured.from_json(champion["dev"]).blocks.shape[1] != new.dev.blocks.shape[1]:
        return "the champion's rows were grouped in another way"
    return None
