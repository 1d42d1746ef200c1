"""Optuna samplers and pruners, and the steps at which a trial reports to its pruner."""

from __future__ import annotations

from typing import assert_never

import optuna

from bertline.finetuning.finetune import DevCheck
from bertline.sweep.config import (
    GridSamplerConfig,
    MedianPrunerConfig,
    NoPrunerConfig,
    RandomSamplerConfig,
    SuccessiveHalvingPrunerConfig,
    SweepConfig,
    TpeSamplerConfig,
)

# Optuna counts resources in whole steps. The first rung is at this step, so that dev checks between rungs (at the ends
# of epochs) have steps of their own.
_FIRST_RUNG = 1000

PrunerConfig = NoPrunerConfig | MedianPrunerConfig | SuccessiveHalvingPrunerConfig


def new_sampler(config: SweepConfig, seed: int) -> optuna.samplers.BaseSampler:
    """Return the sampler for the hyperparameters that the plan leaves open."""
    match config.sampler:
        case GridSamplerConfig() | RandomSamplerConfig():
            # All their points are planned, so this sampler draws nothing.
            return optuna.samplers.RandomSampler(seed=seed)
        case TpeSamplerConfig(num_startup_trials=num_startup_trials):
            # constant_liar: parallel workers do not all sample around the same point.
            return optuna.samplers.TPESampler(seed=seed, n_startup_trials=num_startup_trials, constant_liar=True)
        case _:
            assert_never(config.sampler)


def new_pruner(config: PrunerConfig) -> optuna.pruners.BasePruner:
    """Return the pruner, to which trials report the steps of `step_of`."""
    match config:
        case NoPrunerConfig():
            return optuna.pruners.NopPruner()
        case MedianPrunerConfig():
            # Optuna prunes from step n_warmup_steps on, and epochs count from 1.
            return optuna.pruners.MedianPruner(
                n_startup_trials=config.num_startup_trials, n_warmup_steps=config.num_warmup_epochs + 1
            )
        case SuccessiveHalvingPrunerConfig(reduction_factor=factor):
            return optuna.pruners.SuccessiveHalvingPruner(min_resource=_FIRST_RUNG, reduction_factor=factor)
        case _:
            assert_never(config)


def checks_of(config: PrunerConfig) -> tuple[float, ...]:
    """Return the fractions of a trial's schedule at which its pruner needs a dev score, besides the ends of epochs.

    >>> checks_of(SuccessiveHalvingPrunerConfig(kind="successive_halving", reduction_factor=2, num_rungs=3))
    (0.125, 0.25, 0.5)
    """
    if not isinstance(config, SuccessiveHalvingPrunerConfig):
        return ()
    return tuple(config.reduction_factor**-rung for rung in range(config.num_rungs, 0, -1))


def step_of(config: PrunerConfig, check: DevCheck) -> int | None:
    """Return the step at which a dev check is reported; None if it is not reported.

    Successive halving counts fractions of the trial's own schedule, so that trials of different lengths are compared
    at the same rungs; the other pruners count epochs.
    """
    if isinstance(config, SuccessiveHalvingPrunerConfig):
        return round(check.share * _FIRST_RUNG * config.reduction_factor**config.num_rungs)
    return check.epoch if check.at_epoch_end else None


def may_prune_at(check: DevCheck) -> bool:
    """Return whether pruning would save work: a trial at the end of its schedule is finished, whatever its score."""
    return check.share < 1
