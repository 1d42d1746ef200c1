"""Samplers and pruners as Optuna's, and what a trial tells a pruner."""

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

# Optuna counts resources in whole steps. The first rung lies at this one, so that what lies between rungs (the ends of
# epochs) has a step of its own.
_FIRST_RUNG = 1000

PrunerConfig = NoPrunerConfig | MedianPrunerConfig | SuccessiveHalvingPrunerConfig


def new_sampler(config: SweepConfig, seed: int) -> optuna.samplers.BaseSampler:
    """The sampler that fills in what the plan leaves open."""
    match config.sampler:
        case GridSamplerConfig() | RandomSamplerConfig():
            # Their points are planned; the sampler is never asked.
            return optuna.samplers.RandomSampler(seed=seed)
        case TpeSamplerConfig(num_startup_trials=num_startup_trials):
            # constant_liar: workers side by side do not crowd around one point.
            return optuna.samplers.TPESampler(seed=seed, n_startup_trials=num_startup_trials, constant_liar=True)
        case _:
            assert_never(config.sampler)


def new_pruner(config: PrunerConfig) -> optuna.pruners.BasePruner:
    """The pruner, which sees the steps that `step_of` gives."""
    match config:
        case NoPrunerConfig():
            return optuna.pruners.NopPruner()
        case MedianPrunerConfig():
            # Optuna judges from step n_warmup_steps on, and epochs count from 1.
            return optuna.pruners.MedianPruner(
                n_startup_trials=config.num_startup_trials, n_warmup_steps=config.num_warmup_epochs + 1
            )
        case SuccessiveHalvingPrunerConfig(reduction_factor=factor):
            return optuna.pruners.SuccessiveHalvingPruner(min_resource=_FIRST_RUNG, reduction_factor=factor)
        case _:
            assert_never(config)


def checks_of(config: PrunerConfig) -> tuple[float, ...]:
    """The shares of a trial's schedule after which its pruner looks at dev, besides the ends of epochs.

    >>> checks_of(SuccessiveHalvingPrunerConfig(kind="successive_halving", reduction_factor=2, num_rungs=3))
    (0.125, 0.25, 0.5)
    """
    if not isinstance(config, SuccessiveHalvingPrunerConfig):
        return ()
    return tuple(config.reduction_factor**-rung for rung in range(config.num_rungs, 0, -1))


def step_of(config: PrunerConfig, check: DevCheck) -> int | None:
    """The step of a look at dev; None for one that the pruner does not hear of.

    Successive halving counts shares of the trial's own schedule, so that trials of different length meet at the same
    rungs; the others count epochs.
    """
    if isinstance(config, SuccessiveHalvingPrunerConfig):
        return round(check.share * _FIRST_RUNG * config.reduction_factor**config.num_rungs)
    return check.epoch if check.at_epoch_end else None


def may_prune_at(check: DevCheck) -> bool:
    """Whether there is anything left to save: a trial at its end is finished, however it compares."""
    return check.share < 1
