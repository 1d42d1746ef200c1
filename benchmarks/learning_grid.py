"""Choice of the peer's optimizer in learning.py: kind, learning rate and beta2, on sequences not used otherwise."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import repository_source  # noqa: F401
from bare_configuration import section
from learning_runs import Optimizer, Training, Trainings

from bertline.training.optimizers import OptimizerConfig

UNREPORTED_SEED = 100
"""Seed of the whole grid and of the bertline training that sets its time; no reported training uses it."""
_PACE_STEPS = 60
_MOST_EXTENSIONS = 2


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One training of the grid."""

    optimizer: Optimizer
    num_steps: int
    loss: float
    """Loss on the dev share, nats."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """All cells of the grid, and the best one."""

    best: Cell
    cells: tuple[Cell, ...]

    def for_record(self) -> list[dict[str, Any]]:
        """Return every cell as plain data."""
        return [
            {"optimizer": str(cell.optimizer), "steps": cell.num_steps, "dev_loss": round(cell.loss, 4)}
            for cell in self.cells
        ]


def choose(trainings: Trainings, arguments: argparse.Namespace, *, budget_s: float) -> Choice:
    """Search the grid of each kind of optimizer, with as many steps per cell as the peer takes within the budget.

    The budget includes compilation. The learning rates are tried first, with the first beta2, extending the grid while
    the best rate is the outermost; then the other values of beta2 with the best rate.
    """
    cells: list[Cell] = []
    for preset in arguments.peer_optimizers:
        first = Training(
            side=arguments.peer,
            optimizer=Optimizer(preset=preset),
            num_steps=min(_PACE_STEPS, arguments.steps),
            seed=UNREPORTED_SEED,
            share="dev",
        )
        steps = steps_within(budget_s, trainings.run(first))
        at = partial(_cell, trainings, arguments.peer, preset, steps)
        cells += cells_of_kind(at, sorted(arguments.rates), arguments.beta2)
    return Choice(best=min(cells, key=lambda cell: cell.loss), cells=tuple(cells))


def _cell(trainings: Trainings, side: str, preset: str, steps: int, factor: float, beta2: float) -> Cell:
    own = section(OptimizerConfig, f"optimizer/{preset}")
    optimizer = Optimizer(preset=preset, lr=float(f"{factor * own.lr:.3g}"), beta2=beta2)
    training = Training(side=side, optimizer=optimizer, num_steps=steps, seed=UNREPORTED_SEED, share="dev", timed=False)
    return Cell(optimizer=optimizer, num_steps=steps, loss=trainings.run(training)["loss"])


def cells_of_kind(at: Callable[[float, float], Cell], rates: list[float], beta2: list[float]) -> list[Cell]:
    """Return the cells of one kind of optimizer.

    Args:
        at: Function that trains with a learning rate and a beta2, and returns the cell.
        rates: Learning rates, ascending.
        beta2: Values of beta2; every rate is tried with the first one.
    """
    by_rate = {rate: at(rate, beta2[0]) for rate in rates}

    def best() -> float:
        return min(by_rate, key=lambda rate: by_rate[rate].loss)

    for _ in range(_MOST_EXTENSIONS if len(rates) > 1 else 0):
        tried = sorted(by_rate)
        if best() == tried[0]:
            further = tried[0] ** 2 / tried[1]
        elif best() == tried[-1]:
            further = tried[-1] ** 2 / tried[-2]
        else:
            break
        by_rate[further] = at(further, beta2[0])
    return [*by_rate.values(), *(at(best(), value) for value in beta2[1:])]


def steps_within(budget_s: float, pace: dict[str, float]) -> int:
    """Return the number of steps that the peer takes within the budget after its startup time; at least one.

    >>> steps_within(130.0, {"startup_s": 30.0, "step_s": 0.5})
    200
    """
    return max(1, round((budget_s - pace["startup_s"]) / pace["step_s"]))
