"""Which version of a task's model is the best so far: a new one takes the title by beating the old on the same data.

Nothing else moves the title. Where scores cannot be compared, which model is better is for people to say.
"""

from __future__ import annotations

import math
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
    """Hold a new version to the champion: it wins where there is none, or by a higher score on the same rows.

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
    reason = _cannot_be_compared(new, champion)
    if reason is not None:
        return Verdict(
            False,
            f"does not take the title: {reason}. The alias {new.alias!r} stays where it is. To move it by hand, set it "
            "on this version in MLflow (the model's page, or MlflowClient().set_registered_model_alias), or delete it "
            "there and run the stage export again.",
        )
    old_score, old_std = float(champion["score"]), float(champion["std"])
    difference = new.score - old_score
    scores = f"({new.metric} {new.score:.4f} ± {new.std:.4f} against {old_score:.4f} ± {old_std:.4f})"
    if difference > 0:
        return Verdict(True, f"beats the champion by {difference:.4f} {scores}")
    by = f"by {-difference:.4f} " if difference else "with the same score "
    return Verdict(False, f"stays behind the champion {by}{scores}")


def _cannot_be_compared(new: Standing, champion: Mapping[str, str]) -> str | None:
    """Why the two scores say nothing of each other; None where they do."""
    if not all(math.isfinite(_number(champion.get(name))) for name in ("score", "std")):
        return "no score of the champion is known"
    if champion.get("data_hash") != new.data_hash:
        return "the champion was scored on other rows (the task's data changed)"
    if champion.get("metric") != new.metric:
        return f"the champion was scored by {champion.get('metric')}, this version by {new.metric}"
    if not math.isfinite(new.score):
        return "it has no score"
    return None


def _number(text: str | None) -> float:
    try:
        return math.nan if text is None else float(text)
    except ValueError:
        return math.nan
