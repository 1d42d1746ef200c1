"""Time left in a training: the FLOPs of its remaining steps at the rate of the newest ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from bertline.encoders.loading import LanguageModel
from bertline.examples.masking import masking_policy, max_targets
from bertline.modeling.flops import flops_per_token
from bertline.pretraining.data import MaskedExamples
from bertline.pretraining.plan import Plan
from bertline.pretraining.row_layout import RowLayout, fill_of

_WINDOW_STEPS = 200


@dataclass
class TimeLeft:
    """Estimates the seconds left over all phases: a step of a later phase may cost many times a step of this one.

    The rate is that of the last 200 steps, in work per second of training. Steps that may compile do not count: the
    first step of a start and of each length. Lengths that are not reached yet are assumed to run at the current rate;
    costs that do not depend on the batch, such as the optimizer update, are not modelled separately.
    """

    plan: Plan
    """Steps of the run."""
    work: Mapping[int, float]
    """Work per sequence of each length, in any unit; see `work_of_sequences`."""

    def __post_init__(self) -> None:
        self._newest: deque[tuple[float, float]] = deque(maxlen=_WINDOW_STEPS)
        self._last: tuple[int, float] | None = None

    def take(self, step: int, trained_s: float) -> None:
        """Record a finished step (counted from 1) and the clock's seconds of training after it."""
        length = self.plan.place(step - 1).max_length
        if self._last is not None and self._last[0] == length:
            self._newest.append((self._work_of(step - 1, step), trained_s - self._last[1]))
        self._last = (length, trained_s)

    def after(self, step: int, *, paused_s: float) -> float | None:
        """Return the seconds from now to the end of the last step; None while the rate is unknown.

        Args:
            step: Number of finished steps.
            paused_s: Seconds of pauses between these steps; later pauses are assumed to be as frequent.
        """
        num_steps = self.plan.num_steps
        if step >= num_steps:
            return 0.0
        done, took_s = (sum(values) for values in zip(*self._newest, strict=True)) if self._newest else (0.0, 0.0)
        if not done:
            return None
        return self._work_of(step, num_steps) * took_s / done + paused_s / step * (num_steps - step)

    def _work_of(self, first_step: int, end_step: int) -> float:
        taken = self.plan.sequences(first_step, end_step)
        return sum(count * self.work[length] for length, count in taken.items())


def work_of_sequences(
    model: LanguageModel, examples: Mapping[int, MaskedExamples], layouts: Mapping[int, RowLayout]
) -> dict[int, float]:
    """Return the FLOPs per sequence of each length, forward and backward, including padding unless rows are packed."""
    work = {}
    for length, of_length in examples.items():
        store = of_length.store
        are_apart = of_length.pairs_together is not None
        rows = length * (2 if are_apart else 1)
        positions = rows * fill_of(store, are_apart=are_apart) if layouts[length].packed else float(rows)
        targets = max_targets(length, masking_policy(store.manifest).mask_prob, num_segments=store.num_segments)
        work[length] = positions * flops_of(model, seq_len=positions, target_fraction=targets / length)
    return work


def flops_of(model: LanguageModel, *, seq_len: float, target_fraction: float) -> float:
    """Return `flops_per_token` of a model."""
    return flops_per_token(
        model.bert.config,
        vocab_size=model.bert.vocab_size,
        seq_len=seq_len,
        target_fraction=target_fraction,
        with_pooler=model.bert.pooler is not None,
    )
