"""Search spaces: the hyperparameters that trials vary, the planned points, and the configuration of
a point."""

import itertools
import math
import typing
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import optuna

from bertline.finetuning.config import FineTuningConfig
from bertline.foundation.errors import ConfigError
from bertline.foundation.seeds import generator, seed_for
from bertline.kinds.registry import TaskConfig
from bertline.sweep.config import SweepConfig
from bertline.tasks.config import ChoiceSpace, SpaceConfig

Arm = str
"""`encoder`; `random_weights`; `without_teacher`; `encoder_2`, `encoder_3` and so on, those of
`sweep.encoders`; and `combined`, which is computed from the encoder's finished runs, so it has no
trials."""
Params = dict[str, float | int | str]
_HINTS = typing.get_type_hints(FineTuningConfig)
_FEWEST_NUMBERS_OF_EPOCHS = 3
_WHOLE = {name for name, hint in _HINTS.items() if hint in (int, int | None)}


def space_of(sweep: SweepConfig, task: TaskConfig) -> dict[str, SpaceConfig]:
    """Return the space of one task (`SweepConfig.searched`); it is empty if nothing is trained (0
    epochs)."""
    space = sweep.searched(task)
    num_epochs = task.fine_tuning.get("num_epochs", sweep.fine_tuning.num_epochs)
    if num_epochs == 0 and "num_epochs" not in space:
        return {}
    for name, values in space.items():
        if name not in _WHOLE and _HINTS[name] is not float:
            raise ConfigError(f"space.{name} cannot be varied: it is no number. Set it in fine_tuning.")
        if name in _WHOLE:
            found = values.values if isinstance(values, ChoiceSpace) else (values.kind,)
            if wrong := [value for value in found if isinstance(value, str) or not float(value).is_integer()]:
                raise ConfigError(f"space.{name} takes whole numbers, as kind: choice; found {wrong[0]}.")
    return dict(sorted(space.items()))


def space_of_arm(sweep: SweepConfig, task: TaskConfig, arm: Arm) -> dict[str, SpaceConfig]:
    """Return the space of an arm: the task's; from random weights the number of epochs is varied
    too.

    Random weights may need more epochs than pretrained ones (or overfit sooner), and with one fixed
    number they would lose for that reason alone. `random_weights_epochs` multiplies each number of
    epochs that the encoder may have.
    """
    space = space_of(sweep, task)
    if arm != "random_weights":
        return space
    own = space.get("num_epochs")
    fixed = task.fine_tuning.get("num_epochs", sweep.fine_tuning.num_epochs)
    bases = own.values if isinstance(own, ChoiceSpace) else (fixed,)
    numbers = {max(1, round(float(base) * times)) for base in bases if base for times in sweep.random_weights_epochs}
    if not numbers:
        return space
    while len(numbers) < _FEWEST_NUMBERS_OF_EPOCHS:  # rounding up to 1 may have merged some
        numbers.add(2 * max(numbers))
    values = tuple(float(number) for number in sorted(numbers))
    return dict(sorted({**space, "num_epochs": ChoiceSpace(kind="choice", values=values)}.items()))


def planned_points(sweep: SweepConfig, task: TaskConfig, arm: Arm = "encoder") -> list[Params]:
    """Return the points of an arm's trials in order; the sampler fills in empty ones when their
    trials run.

    Grid, random and quasi-random points depend only on the seed and their position, so it does not
    matter which worker takes which, or how often it was killed. If nothing is varied, there are no
    trials.
    """
    space = space_of_arm(sweep, task, arm)
    if not space:
        return []
    num_trials = task.num_trials or sweep.num_trials
    epochs = space.get("num_epochs")
    if arm == "random_weights" and isinstance(epochs, ChoiceSpace):
        num_trials = max(num_trials, len(epochs.values))
    match sweep.sampler.kind:
        case "grid":
            grid = _grid(space)
            order = generator(sweep.seed, "grid").permutation(len(grid))
            return [grid[i] for i in order[:num_trials]]
        case "random" | "qmc" as kind:
            drawn = _random_points if kind == "random" else _qmc_points
            if arm != "random_weights" or not isinstance(epochs, ChoiceSpace):
                return drawn(space, sweep.seed, num_trials)
            others = {name: values for name, values in space.items() if name != "num_epochs"}
            points = drawn(others, sweep.seed, num_trials)
            return _each_number_of_epochs(points, _choices("num_epochs", epochs), num_trials)
        case _:
            return [{} for _ in range(num_trials)]


def suggest(trial: optuna.Trial, space: Mapping[str, SpaceConfig]) -> Params:
    """Return the point of a trial: the planned one, or one drawn by the study's sampler."""
    params: Params = {}
    for name, values in space.items():
        if isinstance(values, ChoiceSpace):
            params[name] = trial.suggest_categorical(name, _choices(name, values))
        else:
            params[name] = trial.suggest_float(name, values.low, values.high, log=True)
    return params


def with_params(config: FineTuningConfig, params: Params) -> FineTuningConfig:
    """Return the fine-tuning configuration of a point."""
    return replace(config, **cast(dict[str, Any], params))


def _choices(name: str, space: ChoiceSpace) -> list[float | int]:
    return [int(value) if name in _WHOLE else value for value in space.values]


def _grid(space: Mapping[str, SpaceConfig]) -> list[Params]:
    axes = []
    for name, values in space.items():
        if not isinstance(values, ChoiceSpace):
            raise ConfigError(f"sweep.sampler.kind is grid, but space.{name} is {values.kind}; a grid needs choices.")
        axes.append([(name, value) for value in _choices(name, values)])
    return [dict(point) for point in itertools.product(*axes)]


def _each_number_of_epochs(points: list[Params], numbers: list[float | int], num_trials: int) -> list[Params]:
    """Cycle through the numbers of epochs over the points; with few trials, random draws could miss
    some.

    With fewer points than trials, the points are cycled through too; a combination is used once.
    """
    found: list[Params] = []
    for trial in range(num_trials):
        point = points[trial % len(points)]
        # The next number that the point was not combined with; none if it was combined with all.
        turn = (numbers[(trial + shift) % len(numbers)] for shift in range(len(numbers)))
        new = ({**point, "num_epochs": number} for number in turn)
        found += itertools.islice((one for one in new if one not in found), 1)
    return found


def _random_points(space: Mapping[str, SpaceConfig], seed: int, num_trials: int) -> list[Params]:
    """Draw points that depend only on the seed and their position, so that more trials do not
    change the first ones.

    If all axes are choices, every combination is drawn once, in an order given by the seed:
    independent draws would often give the same point, and a point that was tried tells nothing new.
    More trials than points are not run.
    """
    if all(isinstance(values, ChoiceSpace) for values in space.values()):
        grid = _grid(space)
        return [grid[i] for i in generator(seed, "random", 0).permutation(len(grid))[:num_trials]]
    points: list[Params] = [{} for _ in range(num_trials)]
    for (number, point), (name, values) in itertools.product(enumerate(points), space.items()):
        random = generator(seed, "random", number, name)
        if isinstance(values, ChoiceSpace):
            choices = _choices(name, values)
            point[name] = choices[int(random.integers(len(choices)))]
        else:
            point[name] = math.exp(random.uniform(math.log(values.low), math.log(values.high)))
    return points


def _qmc_points(space: Mapping[str, SpaceConfig], seed: int, num_trials: int) -> list[Params]:
    """Draw the points of a Sobol sequence; Optuna's sampler learns the space from a first, random
    point."""
    sampler = optuna.samplers.QMCSampler(seed=seed_for(seed, "qmc") % 2**32, scramble=True)
    study = optuna.create_study(sampler=sampler)
    points = []
    for _ in range(num_trials):
        trial = study.ask()
        points.append(suggest(trial, space))
        study.tell(trial, 0.0)
    return points
