"""A baseline: a name, and predictions in the form in which the task kind returns those of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bertline.finetuning.task_kind import TaskKind
from bertline.kinds.registry import kind_part
from bertline.sweep.baselines.encoder_vectors import FrozenEncoder
from bertline.tasks.stored_rows import SplitName
from bertline.tokenization.tokenizer import Tokenizer

Settings = Mapping[str, float | str]
Choice = TypeVar("Choice")


@dataclass(frozen=True, kw_only=True, slots=True)
class Baseline:
    """Predictions of a simple method, fitted on train and tuned on dev, for the rows of every scored split."""

    name: str
    """Key in the metrics, hence stable: `majority`, `word_ngrams`, `pair_features`, `bm25`, `window_tagger`, ..."""
    title: str
    """Title for display, such as `character n-grams, linear model`."""
    predictions: dict[SplitName, Any]
    """Predictions for `dev`, `test` and each extra test, as returned by `TaskKind.predict`."""
    settings: Settings = field(default_factory=dict)
    """Settings chosen on dev."""


def dev_score(kind: TaskKind[Any, Any, Any], dev: Any, predictions: Any) -> float:
    """Return the task's metric on dev, after calibrating the predictions on dev as for the encoder."""
    calibration = kind.calibrate(dev, predictions)
    return kind.scores(kind.statistics(dev, predictions, calibration))[kind.config.metric]


def best_on_dev(
    kind: TaskKind[Any, Any, Any], dev: Any, choices: Iterable[Choice], predicted: Callable[[Choice], Any]
) -> Choice:
    """Return the choice whose predictions score best on dev; among equals, the first.

    Args:
        kind: Kind of the task.
        dev: Dev rows.
        choices: One or more choices.
        predicted: Returns the predictions of a choice for dev.
    """
    return max(choices, key=lambda choice: dev_score(kind, dev, predicted(choice)))


def predictions_of(best: Callable[[Any], Any], dev: Any, tests: Mapping[SplitName, Any]) -> dict[SplitName, Any]:
    """Return the predictions of a fitted method for dev and every test split."""
    return {split: best(rows) for split, rows in {"dev": dev, **tests}.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """Inputs of a baseline."""

    kind: Any
    """The `TaskKind`."""
    train: Any
    dev: Any
    tests: Mapping[SplitName, Any]
    tokenizer: Tokenizer | None = None
    """The encoder's tokenizer, for tasks that are scored token by token, which have no baseline without it."""
    encoder: FrozenEncoder | None = None
    """The encoder before fine-tuning; without it there are no baselines on its vectors."""


def baselines_of(
    kind: TaskKind[Any, Any, Any],
    train: Any,
    dev: Any,
    tests: Mapping[SplitName, Any],
    tokenizer: Tokenizer | None = None,
    encoder: FrozenEncoder | None = None,
) -> list[Baseline]:
    """Return the baselines of a task, each with predictions for dev and every test split; none depends on a seed.

    `kinds/NAME/baselines.py` has a function `baselines(given) -> list[Baseline]`.
    """
    given = Given(kind=kind, train=train, dev=dev, tests=tests, tokenizer=tokenizer, encoder=encoder)
    return kind_part(kind.config.kind, "baselines").baselines(given)
