"""Training health: alarms with advice, computed from the rows of metrics.jsonl alone."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from bertline.pretraining.config import HealthConfig
from bertline.pretraining.objectives.base import Objective

_MEDIAN_ROWS = 9
_FEWEST_ROWS = 3
"""Spikes are relative to the median of the last `_MEDIAN_ROWS` rows; there are none before `_FEWEST_ROWS` rows."""

_CALMER = (
    "Lower optimizer.lr, lengthen schedule.num_warmup_steps or set optimizer.max_grad_norm=1.0; in bf16, try "
    "pretrain.precision=fp32."
)
ADVICE: dict[str, str] = {
    "non_finite": _CALMER,
    "skipped_steps": f"Now and then this does no harm. {_CALMER}",
    "spike": "If it does not come back within some hundred steps, lower optimizer.lr, lengthen "
    "schedule.num_warmup_steps, lower optimizer.max_grad_norm, or let training roll back and skip the examples "
    "(pretrain.health.rewind_on_spike=true).",
    "gradients_vanish": "The weights hardly learn. See the weights of objective, model.initializer_range (0.02 in "
    "the paper) and the checkpoint of pretrain.start_from; in bf16, try pretrain.precision=fp32.",
    "gradients_explode": "Lower model.initializer_range (0.02 in the paper) or optimizer.lr, lengthen "
    "schedule.num_warmup_steps, set optimizer.max_grad_norm=1.0.",
    "data_wait": "Raise runtime.num_workers, leave a core to each worker (runtime.num_threads), and keep the examples "
    "on a disk of this machine.",
}
"""Advice for each kind of alarm that any objective can raise; the texts name configuration keys."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Alarm:
    """A training problem that needs attention."""

    kind: str
    step: int
    """Number of finished steps when the problem was detected."""
    message: str
    advice: str

    @classmethod
    def of(cls, kind: str, step: int, message: str) -> Alarm:
        """Create an alarm with the advice for its kind, one of `ADVICE`."""
        return cls(kind=kind, step=step, message=message, advice=ADVICE[kind])


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """Properties of one training phase."""

    first_step: int
    """First step of the phase, 0-based."""
    baselines: Mapping[str, float]
    """Baselines of the objective's metrics at the sequence length of the phase."""


@dataclass
class HealthMonitor:
    """Checks the rows of a training run in order and reports each problem once until it is over."""

    config: HealthConfig
    num_warmup_steps: int
    """Number of warm-up steps of the schedule."""
    objective: Objective
    """Judges which metrics are still at their baselines."""
    stretch_of: Callable[[int], Stretch]
    """Function that returns the phase of a 0-based step."""

    def __post_init__(self) -> None:
        self._stretch: Stretch | None = None
        self._rows: deque[tuple[int, Mapping[str, float]]] = deque()
        self._losses: deque[float] = deque(maxlen=_MEDIAN_ROWS)
        self._standing: set[str] = set()

    def take(self, step: int, metrics: Mapping[str, float]) -> list[Alarm]:
        """Check the next row of metrics and return the new alarms. Rows from probes are ignored."""
        if "train/loss" not in metrics:
            return []
        self._enter(self.stretch_of(step - 1))
        problems = dict(self._non_finite(metrics))
        if math.isfinite(metrics["train/loss"]):
            self._rows.append((step, metrics))
            while self._rows[0][0] <= step - self.config.patience_steps:
                self._rows.popleft()
            for find in (self._spike, self._gradients, self._at_baseline, self._data_wait):
                problems.update(find(step, metrics))
        new = [kind for kind in problems if kind not in self._standing]
        self._standing = set(problems)
        advice = {**ADVICE, **self.objective.advice}
        return [Alarm(kind=kind, step=step, message=problems[kind], advice=advice[kind]) for kind in new]

    def _enter(self, stretch: Stretch) -> None:
        """Forget the previous rows when a new phase starts: losses at different lengths are not comparable."""
        if stretch != self._stretch:
            self._stretch = stretch
            self._rows.clear()
            self._losses.clear()

    def _non_finite(self, metrics: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        skipped = metrics.get("optim/skipped_steps", 0.0)
        found = f"{skipped:.0f} steps since the last row had gradients that are infinite or NaN"
        if skipped > self.config.max_skipped_steps:
            yield "non_finite", found
        elif not math.isfinite(metrics["train/loss"]):
            yield "non_finite", f"the loss is {metrics['train/loss']}"
        elif skipped:
            yield "skipped_steps", f"{found} and were skipped"

    def _spike(self, step: int, metrics: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        loss = metrics["train/loss"]
        median = statistics.median(self._losses) if len(self._losses) >= _FEWEST_ROWS else math.inf
        if loss > self.config.spike_factor * median:
            # The row stays out of the median: a loss that never recovers must not become the baseline.
            yield "spike", f"the loss rose to {loss:.2f}; the median of the rows before is {median:.2f}"
        else:
            self._losses.append(loss)

    def _gradients(self, step: int, metrics: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        norm = metrics["optim/grad_norm"]
        if norm < self.config.min_grad_norm:
            yield "gradients_vanish", f"the mean norm of the gradients is {norm:.2g}"
        if norm > self.config.max_grad_norm:
            yield "gradients_explode", f"the mean norm of the gradients, before clipping, is {norm:.2g}"

    def _at_baseline(self, step: int, metrics: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        patience = self.config.patience_steps
        assert self._stretch is not None  # set by `take`
        if step - max(self.num_warmup_steps, self._stretch.first_step) < patience:
            return
        baselines = self._stretch.baselines
        means = {name: self._mean(f"train/{name}") for name in baselines}
        yield from self.objective.alarms(means, baselines, self.config, steps=patience)

    def _data_wait(self, step: int, metrics: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        assert self._stretch is not None  # set by `take`
        share = self._mean("perf/data_wait_fraction")
        if step - self._stretch.first_step >= self.config.patience_steps and (
            share > self.config.max_data_wait_fraction
        ):
            yield "data_wait", f"{share:.0%} of the time of the last steps was spent waiting for data"

    def _mean(self, key: str) -> float:
        return statistics.fmean(metrics[key] for _, metrics in self._rows)
