"""Plots of the encoder's trials as SVG: history, slices, parallel coordinates and importance."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import TrialState

# With fewer trials, importances from a random forest are mostly chance.
_FEWEST_FOR_IMPORTANCE = 10
_FOREST_SEED = 0


def write_plots(folder: Path, study: optuna.Study, metric: str) -> dict[str, str]:
    """Write `history.svg`, `slice.svg`, `parallel_coordinates.svg` and `importance.svg`.

    Returns:
        The reason for each missing plot, by the plot's name.

    References:
        Importance: Hutter, Hoos and Leyton-Brown, "An Efficient Approach for Assessing Hyperparameter Importance",
        ICML 2014 (functional ANOVA over a random forest).
    """
    finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    varied = {
        name
        for name in {name for trial in finished for name in trial.params}
        if len({trial.params.get(name) for trial in finished}) > 1
    }
    values = {trial.value for trial in finished}
    folder.mkdir(parents=True, exist_ok=True)
    missing: dict[str, str] = {}
    for name, draw, wanted in _plots(metric):
        if name == "importance" and len(finished) < _FEWEST_FOR_IMPORTANCE:
            missing[name] = f"fewer than {_FEWEST_FOR_IMPORTANCE} trials finished"
        elif len(finished) < 2:
            missing[name] = "fewer than two trials finished"
        elif len(varied) < wanted:
            missing[name] = f"fewer than {wanted} hyperparameters vary"
        elif name == "importance" and len(values) == 1:
            missing[name] = "all trials have the same score"
        else:
            _draw(folder / f"{name}.svg", draw, study)
    return missing


def _plots(metric: str) -> list[tuple[str, Callable[[optuna.Study], Any], int]]:
    """Return name, drawing function and minimum number of varying hyperparameters of each plot."""
    import matplotlib

    matplotlib.use("Agg")  # otherwise pyplot would look for a display
    from optuna.visualization import matplotlib as plots

    label = f"{metric} on dev"

    def importance(study: optuna.Study) -> Any:
        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=_FOREST_SEED)
        return plots.plot_param_importances(study, evaluator=evaluator, target_name=label)

    return [
        ("history", lambda study: plots.plot_optimization_history(study, target_name=label), 0),
        ("slice", lambda study: plots.plot_slice(study, target_name=label), 1),
        ("parallel_coordinates", lambda study: plots.plot_parallel_coordinate(study, target_name=label), 1),
        ("importance", importance, 2),
    ]


def _draw(path: Path, draw: Callable[[optuna.Study], Any], study: optuna.Study) -> None:
    import matplotlib.pyplot as plt
    import numpy as np

    # The same trials give the same bytes: no date, and a fixed salt for the ids of shapes.
    with plt.rc_context({"svg.hashsalt": "bertline"}), warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        warnings.simplefilter("ignore", UserWarning)  # about ticks of a parameter with few values
        axes = np.ravel(np.asarray(draw(study), dtype=object))
        figure = axes[0].figure
        figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
        plt.close(figure)
