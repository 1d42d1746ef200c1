"""A baseline: a name, and predictions in the form that the task's kind gives its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bertline.tasks.storage import SplitName


@dataclass(frozen=True, kw_only=True, slots=True)
class Baseline:
    """What a simple method says of the rows of every scored split. It sees train, and chooses on dev."""

    name: str
    """`majority`, `tfidf_logistic_regression`, `bm25`, `most_frequent_tag`, `first_sentence`, ..."""
    title: str
    """For people: `TF-IDF, logistic regression`."""
    predictions: dict[SplitName, Any]
    """For `dev`, `test` and each extra test: as `TaskKind.predict` gives them."""
    settings: dict[str, float] = field(default_factory=dict)
    """What dev chose."""
