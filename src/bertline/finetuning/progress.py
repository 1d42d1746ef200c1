"""Progress lines of a fine-tuning run, and detection of divergence."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from bertline.foundation.errors import BertlineError
from bertline.foundation.formats import duration
from bertline.foundation.progress import say

# Reading a value from a GPU synchronizes with it, so losses are read in groups there; on a CPU reading is free.
_LOOK_EVERY_STEPS_ON_A_GPU = 50


class DivergedError(BertlineError):
    """The loss or the gradient is no longer finite; the run cannot continue."""


class LossMonitor:
    """Ends a run when its loss or gradient norm is no longer finite.

    Args:
        device: Device of the losses.
        max_grad_norm: Gradient clipping norm, quoted in the error message.
    """

    def __init__(self, device: torch.device, *, max_grad_norm: float) -> None:
        self._every = 1 if device.type == "cpu" else _LOOK_EVERY_STEPS_ON_A_GPU
        self._max_grad_norm = max_grad_norm
        self._unread: list[tuple[int, float, Tensor]] = []

    def observe(self, step: int, lr: float, loss: Tensor, grad_norm: Tensor) -> None:
        """Record the loss of a step (counted from 1) and its gradient norm.

        Raises:
            DivergedError: A loss or gradient norm recorded so far is not finite.
        """
        self._unread.append((step, lr, torch.stack([loss.detach().float(), grad_norm.detach().float()])))
        if len(self._unread) >= self._every:
            self.read()

    def read(self) -> None:
        """Check all losses that have not been checked yet.

        Raises:
            DivergedError: See `observe`.
        """
        unread, self._unread = self._unread, []
        if not unread:
            return
        values = torch.stack([pair for _, _, pair in unread]).cpu()
        for (step, lr, _), (loss, norm) in zip(unread, values.tolist(), strict=True):
            if not (abs(loss) < float("inf") and norm < float("inf")):
                raise DivergedError(
                    f"The loss of step {step:,} is {loss} and the norm of its gradient {norm}, at a learning rate of "
                    f"{lr:.3g}: training has diverged. Lower fine_tuning.learning_rate, raise "
                    f"fine_tuning.warmup_fraction, or lower fine_tuning.max_grad_norm (now {self._max_grad_norm:g}); "
                    "if even a small rate fails, look for damaged weights or numbers in the data."
                )


class RunProgress:
    """Logs the progress of a run every `every_s` seconds: steps, loss, tokens per second, time left.

    Args:
        num_steps: Number of steps of the run.
        every_s: Seconds between lines.
    """

    def __init__(self, num_steps: int, *, every_s: float) -> None:
        self._num_steps = num_steps
        self._every_s = every_s
        self._started = self._last_line = time.monotonic()
        self._begin_interval()

    def _begin_interval(self) -> None:
        self._loss: Tensor | None = None
        self._tokens: list[Tensor] = []
        self._busy_s = 0.0
        self._steps = 0

    def step(self, step: int, batch: dict[str, Tensor], loss: Tensor, took_s: float) -> None:
        """Record a finished step (counted from 1), and log a line if one is due."""
        self._loss = loss.detach() if self._loss is None else self._loss + loss.detach()
        self._tokens += [mask.sum() for name, mask in batch.items() if name.endswith("attention_mask")]
        self._busy_s += took_s
        self._steps += 1
        now = time.monotonic()
        if now - self._last_line < self._every_s or step == self._num_steps:
            return
        self._last_line = now
        left_s = (now - self._started) / step * (self._num_steps - step)
        tokens = sum(int(count) for count in self._tokens)
        speed = f", {tokens / self._busy_s:,.0f} tokens/s" if tokens else ""
        say(
            f"fine-tuning: step {step:,} of {self._num_steps:,}, loss {float(self._loss) / self._steps:.3f}{speed}, "
            f"{duration(left_s)} left"
        )
        self._begin_interval()
