"""A baseline: a name, and predictions in the form in which the task kind returns those of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bertline.linear.model import LinearPredictor
from bertline.tasks.stored_rows import SplitName

if TYPE_CHECKING:
    from bertline.baselines.frozen_encoder import FrozenEncoder

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
    settings: Mapping[str, float | str] = field(default_factory=dict)
    save: Callable[[Path], None] | None = None
    """Writes the fitted model into a folder, of which the same predictions come; None: no folder can hold it."""
    refitted: Callable[[NDArray[np.int64]], Callable[[Any], Any]] | None = None
    """Fits what dev chose to some of the train rows, by their indices, and returns what predicts rows."""


def dev_score(kind: Any, dev: Any, predictions: Any) -> float:
    """Return the metric of a `TaskKind` on dev, after calibrating the predictions on dev as for the encoder."""
    calibration = kind.calibrate(dev, predictions)
    return kind.score(kind.statistics(dev, predictions, calibration))


@dataclass(frozen=True, kw_only=True, slots=True)
class BaselineInputs:
    """Inputs of a baseline."""

    kind: Any
    """The `TaskKind`."""
    train: Any
    dev: Any
    tests: Mapping[SplitName, Any]
    folds: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]] = ()
    """Indices of the rows that each fold trains on, and of those it predicts. With folds, `train` and `dev` are the
    same rows, and predictions for `dev` are by models that did not see them."""
    encoder: FrozenEncoder | None = None
    """The encoder before fine-tuning; without it there are no baselines on its vectors."""

    @property
    def scored(self) -> dict[SplitName, Any]:
        return {"dev": self.dev, **self.tests}

    def best(self, choices: Iterable[Choice], predicted: Callable[[Choice], Any]) -> Choice:
        """Return the choice whose predictions for dev score best; among equals, the first."""
        return max(choices, key=lambda choice: dev_score(self.kind, self.dev, predicted(choice)))

    def baseline(
        self, name: str, title: str, predicted: Callable[[Any], Any], settings: Mapping[str, float | str] | None = None
    ) -> Baseline:
        """Return a fitted method as a baseline, with its predictions for dev and every test split."""
        predictions = {split: predicted(rows) for split, rows in self.scored.items()}
        save = None
        if isinstance(predicted, LinearPredictor) and predicted.can_be_saved:
            save = partial(predicted.save, title=title)
        return Baseline(name=name, title=title, predictions=predictions, settings=settings or {}, save=save)
