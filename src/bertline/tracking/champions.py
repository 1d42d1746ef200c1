"""Which version of a task's model is the best so far: a new one takes the title by beating the old on the same data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_TAGS = ("data_hash", "metric", "score", "std")


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """How good a version is, and on what."""

    alias: str
    """Of the best version (`champion`)."""
    data_hash: str
    """Of the task's rows: scores on other rows cannot be compared."""
    metric: str
    score: float
    """Mean over the seeds on test; higher is better."""
    std: float

    def tags(self) -> dict[str, str]:
        """For the version, so that the next one can be held to it."""
        return {name: str(getattr(self, name)) for name in _TAGS}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a version becomes the champion."""

    wins: bool
    reason: str
    """For the log; begins after the version's name."""


def challenged(new: Standing, champion: Mapping[str, str] | None) -> Verdict:
    """Hold a new version to the champion.

    Args:
        new: The challenger.
        champion: Tags of the champion's version; None where there is none.

    Example:
        >>> new = Standing(alias="champion", data_hash="d", metric="accuracy", score=0.81, std=0.01)
        >>> challenged(new, {"data_hash": "d", "metric": "accuracy", "score": "0.84", "std": "0.0"}).reason
        'stays behind the champion by 0.0300 (accuracy 0.8100 ± 0.0100 against 0.8400 ± 0.0000)'
    """
    if champion is None:
        return Verdict(True, "is the first champion")
    try:
        old_score, old_std = float(champion["score"]), float(champion["std"])
    except (KeyError, ValueError):
        return Verdict(True, "is the champion: the one before says no score")
    if champion.get("data_hash") != new.data_hash:
        return Verdict(True, "is the champion: the task's data changed, so the scores cannot be compared")
    if champion.get("metric") != new.metric:
        return Verdict(True, f"is the champion: the one before was scored by {champion.get('metric')}")
    difference = new.score - old_score
    scores = f"({new.metric} {new.score:.4f} ± {new.std:.4f} against {old_score:.4f} ± {old_std:.4f})"
    # `not >` keeps the champion against NaN, too.
    if not difference > 0:
        by = f"by {-difference:.4f} " if difference else "with the same score "
        return Verdict(False, f"stays behind the champion {by}{scores}")
    return Verdict(True, f"beats the champion by {difference:.4f} {scores}")
