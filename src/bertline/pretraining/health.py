"""Training health: alarms with advice, computed from the rows of metrics.jsonl alone."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from bertline.pretraining.config import HealthConfig

AlarmKind = Literal[
    "non_finite",
    "skipped_steps",
    "spike",
    "unigram_entropy",
    "nsp_at_chance",
    "gradients_vanish",
    "gradients_explode",
    "data_wait",
]
_MEDIAN_ROWS = 9
_FEWEST_ROWS = 3
"""Spikes are relative to the median of the last `_MEDIAN_ROWS` rows; there are none before `_FEWEST_ROWS` rows."""

_CALMER = (
    "Lower optimizer.lr, lengthen schedule.num_warmup_steps or set optimizer.max_grad_norm=1.0; in bf16, try "
    "pretrain.precision=fp32."
)
ADVICE: dict[AlarmKind, str] = {
    "non_finite": _CALMER,
    "skipped_steps": f"Now and then this does no harm. {_CALMER}",
    "spike": "If it does not come back within some hundred steps, lower optimizer.lr, lengthen "
    "schedule.num_warmup_steps, lower optimizer.max_grad_norm, or let training roll back and skip the examples "
    "(pretrain.health.rewind_on_spike=true).",
    "unigram_entropy": "A large model may stay here for some thousand steps. Else raise optimizer.lr or the batch, "
    "try optimizer=muon_short, or short sequences first (examples.lengths=[16,64] and two pretrain.phases), and see "
    "that the text is in order.",
    "nsp_at_chance": "It comes after the blanks, so wait while the MLM loss is near the unigram entropy. Else see that "
    "documents have several sentences in their order; where text has no order, set objective.nsp_weight=0.",
    "gradients_vanish": "The weights hardly learn. See objective.nsp_weight, model.initializer_range (0.02 in the "
    "paper) and the checkpoint of pretrain.start_from; in bf16, try pretrain.precision=fp32.",
    "gradients_explode": "Lower model.initializer_range (0.02 in the paper) or optimizer.lr, lengthen "
    "schedule.num_warmup_steps, set optimizer.max_grad_norm=1.0.",
    "data_wait": "Raise runtime.num_workers, leave a core to each worker (runtime.num_threads), and keep the examples "
    "on a disk of this machine.",
}
"""Advice for each kind of alarm; the texts name configuration keys."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Alarm:
    """A training problem that needs attention."""

    kind: AlarmKind
    step: int
    """Number of finished steps when the problem was detected."""
    message: str
    advice: str

    @classmethod
    def of(cls, kind: AlarmKind, step: int, message: str) -> Alarm:
        """Create an alarm with the advice for its kind."""
        return cls(kind=kind, step=step, message=message, advice=ADVICE[kind])


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """Properties of one training phase."""

    first_step: int
    """First step of the phase, 0-based."""
    unigram_entropy: float
    """Unigram entropy at the sequence length of the phase, in nats."""


class HealthMonitor:
    """Checks the rows of a training run in order and reports each problem once until it is over.

    Args:
        config: `pretrain.health`.
        num_warmup_steps: Number of warm-up steps of the schedule.
        nsp_chance: NSP accuracy of always predicting the more frequent label (0.5 if both are equally frequent, as in
            the paper, A.2); None if NSP has no weight in the loss.
        stretch_of: Function that returns the phase of a 0-based step.
    """

    def __init__(
        self,
        config: HealthConfig,
        *,
        num_warmup_steps: int,
        nsp_chance: float | None,
        stretch_of: Callable[[int], Stretch],
    ) -> None:
        self._config = config
        self._num_warmup_steps = num_warmup_steps
        self._nsp_chance = nsp_chance
        self._stretch_of = stretch_of
        self._stretch: Stretch | None = None
        self._rows: deque[tuple[int, Mapping[str, float]]] = deque()
        self._losses: deque[float] = deque(maxlen=_MEDIAN_ROWS)
        self._standing: set[AlarmKind] = set()

    def take(self, step: int, metrics: Mapping[str, float]) -> list[Alarm]:
        """Check the next row of metrics and return the new alarms. Rows from probes are ignored."""
        if "train/loss" not in metrics:
            return []
        self._enter(self._stretch_of(step - 1))
        problems = dict(self._non_finite(metrics))
        if math.isfinite(metrics["train/loss"]):
            self._rows.append((step, metrics))
            while self._rows[0][0] <= step - self._config.patience_steps:
                self._rows.popleft()
            for find in (self._spike, self._gradients, self._at_chance, self._data_wait):
                problems.update(find(step, metrics))
        new = [kind for kind in problems if kind not in self._standing]
        self._standing = set(problems)
        return [Alarm.of(kind, step, problems[kind]) for kind in new]

    def _enter(self, stretch: Stretch) -> None:
        """Forget the previous rows when a new phase starts: losses at different lengths are not comparable."""
        if stretch != self._stretch:
            self._stretch = stretch
            self._rows.clear()
            self._losses.clear()

    def _non_finite(self, metrics: Mapping[str, float]) -> Iterator[tuple[AlarmKind, str]]:
        skipped = metrics.get("optim/skipped_steps", 0.0)
        found = f"{skipped:.0f} steps since the last row had gradients that are infinite or NaN"
        if skipped > self._config.max_skipped_steps:
            yield "non_finite", found
        elif not math.isfinite(metrics["train/loss"]):
            yield "non_finite", f"the loss is {metrics['train/loss']}"
        elif skipped:
            yield "skipped_steps", f"{found} and were skipped"

    def _spike(self, step: int, metrics: Mapping[str, float]) -> Iterator[tuple[AlarmKind, str]]:
        loss = metrics["train/loss"]
        median = statistics.median(self._losses) if len(self._losses) >= _FEWEST_ROWS else math.inf
        if loss > self._config.spike_factor * median:
            # The row stays out of the median: a loss that never recovers must not become the baseline.
            yield "spike", f"the loss rose to {loss:.2f}; the median of the rows before is {median:.2f}"
        else:
            self._losses.append(loss)

    def _gradients(self, step: int, metrics: Mapping[str, float]) -> Iterator[tuple[AlarmKind, str]]:
        norm = metrics["optim/grad_norm"]
        if norm < self._config.min_grad_norm:
            yield "gradients_vanish", f"the mean norm of the gradients is {norm:.2g}"
        if norm > self._config.max_grad_norm:
            yield "gradients_explode", f"the mean norm of the gradients, before clipping, is {norm:.2g}"

    def _at_chance(self, step: int, metrics: Mapping[str, float]) -> Iterator[tuple[AlarmKind, str]]:
        patience = self._config.patience_steps
        assert self._stretch is not None  # set by `take`
        if step - max(self._num_warmup_steps, self._stretch.first_step) < patience:
            return
        mlm_loss, entropy = self._mean("train/mlm_loss"), self._stretch.unigram_entropy
        if mlm_loss > entropy - self._config.entropy_margin:
            yield (
                "unigram_entropy",
                f"the MLM loss of the last {patience:,} steps is {mlm_loss:.2f} nats; guessing blanks by frequency "
                f"alone gives {entropy:.2f}",
            )
        accuracy, chance = self._mean("train/nsp_accuracy"), self._nsp_chance
        if chance is not None and accuracy < nsp_learnt_from(chance, self._config.nsp_margin):
            yield (
                "nsp_at_chance",
                f"the share of next sentences judged right in the last {patience:,} steps is {accuracy:.3f}; always "
                f"saying the more frequent label gives {chance:g}",
            )

    def _data_wait(self, step: int, metrics: Mapping[str, float]) -> Iterator[tuple[AlarmKind, str]]:
        assert self._stretch is not None  # set by `take`
        share = self._mean("perf/data_wait_fraction")
        if step - self._stretch.first_step >= self._config.patience_steps and (
            share > self._config.max_data_wait_fraction
        ):
            yield "data_wait", f"{share:.0%} of the time of the last steps was spent waiting for data"

    def _mean(self, key: str) -> float:
        return statistics.fmean(metrics[key] for _, metrics in self._rows)


def nsp_learnt_from(chance: float, margin: float) -> float:
    """Return the NSP accuracy that counts as learning: `margin` above a chance of 0.5, less above a higher chance.

    >>> nsp_learnt_from(0.5, 0.02), round(nsp_learnt_from(0.9, 0.02), 6), nsp_learnt_from(1.0, 0.02)
    (0.52, 0.904, 1.0)
    """
    return chance + 2 * (1 - chance) * margin
