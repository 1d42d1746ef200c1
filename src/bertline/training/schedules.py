"""Learning-rate schedules: pure functions of the step, so that a resumed run needs no scheduler state."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import assert_never

import torch
from torch.optim.lr_scheduler import LRScheduler

from bertline.training.config import (
    ConstantScheduleConfig,
    CosineScheduleConfig,
    LinearScheduleConfig,
    ScheduleConfig,
    WarmupStableDecayScheduleConfig,
)

# arXiv 2405.18392, section 3.2: a decay over a fifth of the steps matches a cosine over all of them.
_DECAY_SHARE = 0.2


def learning_rate_factor(config: ScheduleConfig, num_steps: int) -> Callable[[int], float]:
    """Return the factor of the peak learning rate, in `[0, 1]`, as a function of the step.

    The step is the 0-based one about to be taken. Warm-up is linear; its last step has the full peak learning rate.

    Notes:
        The reference code starts at a learning rate of zero and ends one step before zero. Here neither end is wasted:
        the first step has `1 / num_warmup_steps` of the peak, and the decay would end at step `num_steps`.

    References:
        Linear: BERT, arXiv 1810.04805, appendix A.2. Cosine: SGDR, arXiv 1608.03983, section 3, one period.
        Warm-up, stable, decay: arXiv 2405.18392, section 3.

    Example:
        >>> factor = learning_rate_factor(LinearScheduleConfig(kind="linear", num_warmup_steps=2), num_steps=6)
        >>> [factor(step) for step in range(7)]
        [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    num_warmup_steps, num_decay_steps, decay = config.num_warmup_steps, num_steps, _decay(config)
    if isinstance(config, WarmupStableDecayScheduleConfig):
        given = config.num_decay_steps
        num_decay_steps = round(_DECAY_SHARE * num_steps) if given is None else given
    decay_start = max(num_warmup_steps, num_steps - num_decay_steps)  # no step of the warm-up
    num_decay_steps = max(1, num_steps - decay_start)

    def factor(step: int) -> float:
        if step < num_warmup_steps:
            return (step + 1) / num_warmup_steps
        return decay(min(1.0, max(0, step - decay_start) / num_decay_steps))

    return factor


class StepSchedule(LRScheduler):
    """`learning_rate_factor` times the peak `lr`, for PyTorch; the `rate_factor` of a parameter group multiplies it."""

    def __init__(self, optimizer: torch.optim.Optimizer, lr: float, factor: Callable[[int], float]) -> None:
        self._lr, self._factor = lr, factor
        super().__init__(optimizer)

    def get_lr(self) -> list[float | torch.Tensor]:
        """Return the learning rate of the next step for each parameter group."""
        lr = self._lr * self._factor(self.last_epoch)
        return [lr * group.get("rate_factor", 1.0) for group in self.optimizer.param_groups]


def _decay(config: ScheduleConfig) -> Callable[[float], float]:
    """Return the factor after the peak as a function of the fraction, in `[0, 1]`, of the decay that has passed."""
    match config:
        case LinearScheduleConfig():
            return lambda share: 1.0 - share
        case CosineScheduleConfig(final_fraction=final):
            return lambda share: final + (1.0 - final) * 0.5 * (1.0 + math.cos(math.pi * share))
        case ConstantScheduleConfig():
            return lambda share: 1.0
        case WarmupStableDecayScheduleConfig(final_fraction=final, decay="linear"):
            return lambda share: final + (1.0 - final) * (1.0 - share)
        case WarmupStableDecayScheduleConfig(final_fraction=final):
            return lambda share: final + (1.0 - final) * (1.0 - math.sqrt(share))
        case _:
            assert_never(config)
