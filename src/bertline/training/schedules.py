"""Learning-rate schedules: pure functions of the step, so that a resumed run needs no scheduler state."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import assert_never

from bertline.training.config import (
    ConstantScheduleConfig,
    CosineScheduleConfig,
    LinearScheduleConfig,
    ScheduleConfig,
)


def learning_rate_factor(config: ScheduleConfig, num_steps: int) -> Callable[[int], float]:
    """The factor, in `[0, 1]`, that the peak learning rate is multiplied by at each step.

    Args:
        config: The shape. Warm-up is linear; its last step has the whole peak rate.
        num_steps: Optimizer steps of the whole run; the decay ends there.

    Returns:
        A function of the 0-based step that is about to be taken.

    Notes:
        The reference code starts at a rate of zero and ends one step before zero. Here neither end is wasted: the first
        step has `1 / num_warmup_steps` of the peak, and the rate would reach the end of its decay at `num_steps`.

    References:
        Linear: BERT, arXiv 1810.04805, appendix A.2. Cosine: SGDR, arXiv 1608.03983, section 3, one period.

    Example:
        >>> factor = learning_rate_factor(LinearScheduleConfig(kind="linear", num_warmup_steps=2), num_steps=6)
        >>> [factor(step) for step in range(7)]
        [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    num_warmup_steps = config.num_warmup_steps
    decay = _decay(config)
    num_decay_steps = max(1, num_steps - num_warmup_steps)

    def factor(step: int) -> float:
        if step < num_warmup_steps:
            return (step + 1) / num_warmup_steps
        return decay(min(1.0, (step - num_warmup_steps) / num_decay_steps))

    return factor


def _decay(config: ScheduleConfig) -> Callable[[float], float]:
    """The factor after warm-up as a function of the share, in `[0, 1]`, of the remaining steps that has gone by."""
    match config:
        case LinearScheduleConfig():
            return lambda share: 1.0 - share
        case CosineScheduleConfig(final_fraction=final):
            return lambda share: final + (1.0 - final) * 0.5 * (1.0 + math.cos(math.pi * share))
        case ConstantScheduleConfig():
            return lambda share: 1.0
        case _:
            assert_never(config)
