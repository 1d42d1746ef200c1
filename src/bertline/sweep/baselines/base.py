"""A baseline: a name, and predictions in the form that the task's kind gives its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bertline.finetuning.kinds.base import TaskKind
from bertline.tasks.storage import SplitName

Settings = Mapping[str, float | str]
Choice = TypeVar("Choice")


@dataclass(frozen=True, kw_only=True, slots=True)
class Baseline:
    """What a simple method says of the rows of every scored split. It sees train, and chooses on dev."""

    name: str
    """A key of the metrics, and so stable: `majority`, `word_ngrams`, `pair_features`, `bm25`, `window_tagger`, ..."""
    title: str
    """For people: `character n-grams, linear model`."""
    predictions: dict[SplitName, Any]
    """For `dev`, `test` and each extra test: as `TaskKind.predict` gives them."""
    settings: Settings = field(default_factory=dict)
    """What dev chose."""


def dev_score(kind: TaskKind[Any, Any, Any], dev: Any, predictions: Any) -> float:
    """The task's metric on dev, with what dev decides for predictions as it does for the encoder's."""
    calibration = kind.calibrate(dev, predictions)
    return kind.scores(kind.statistics(dev, predictions, calibration))[kind.config.metric]


def best_on_dev(
    kind: TaskKind[Any, Any, Any], dev: Any, choices: Iterable[Choice], predicted: Callable[[Choice], Any]
) -> Choice:
    """The choice whose predictions for dev score best; of equals the first.

    Args:
        kind: The task's.
        dev: Its dev rows.
        choices: At least one.
        predicted: Predictions for dev of a choice.
    """
    return max(choices, key=lambda choice: dev_score(kind, dev, predicted(choice)))


def predictions_of(best: Callable[[Any], Any], dev: Any, tests: Mapping[SplitName, Any]) -> dict[SplitName, Any]:
    """Predictions of a finished method for dev and every test."""
    return {split: best(rows) for split, rows in {"dev": dev, **tests}.items()}
