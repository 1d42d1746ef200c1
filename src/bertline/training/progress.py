"""Progress of a training: its time without pauses, and a bar on a terminal or a line every few seconds in a log."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, Self

from bertline.foundation.formats import duration
from bertline.foundation.progress import LiveLine, ProgressLine, can_draw, say


class Seconds(NamedTuple):
    """Breakdown of elapsed time, in seconds."""

    trained_s: float = 0.0
    """Time training, including waiting for data, without pauses."""
    waited_s: float = 0.0
    paused_s: float = 0.0
    """Time paused for probes, validation and saving."""

    def __sub__(self, other: Self) -> Self:
        return type(self)(*(now - before for now, before in zip(self, other, strict=True)))


class TrainingClock:
    """Measures seconds of training, of waiting for data and of pauses over a whole run, once it is started.

    `before` are the seconds of the run in earlier processes.
    """

    def __init__(self, before: Seconds | None = None, *, now: Callable[[], float] = time.perf_counter) -> None:
        self._before = before or Seconds()
        self._now = now
        self._started: float | None = None
        self._pause_begun: float | None = None
        self._waited_s = self._paused_s = 0.0

    def start(self) -> None:
        """Start the clock; the seconds of this process so far do not count."""
        self._started = self._now()
        self._waited_s = self._paused_s = 0.0

    @property
    def seconds(self) -> Seconds:
        """Seconds of the run, including a pause in progress."""
        if self._started is None:
            return self._before
        now = self._now()
        paused_s = self._paused_s + (0.0 if self._pause_begun is None else now - self._pause_begun)
        return Seconds(
            trained_s=self._before.trained_s + now - self._started - paused_s,
            waited_s=self._before.waited_s + self._waited_s,
            paused_s=self._before.paused_s + paused_s,
        )

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count the time inside the block as a pause, not as training."""
        self._pause_begun = self._now()
        try:
            yield
        finally:
            self._paused_s += self._now() - self._pause_begun
            self._pause_begun = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time inside the block as waiting for the next batch."""
        begun = self._now()
        try:
            yield
        finally:
            self._waited_s += self._now() - begun


class TrainingProgress:
    """Shows steps, the newest metrics and the time left.

    Args:
        first_step: Number of steps finished before this start; `num_steps` are those of the whole run.
        every_s: Seconds between lines when there is no terminal.
        shown: Whether this process shows anything; true on the first rank.
        score: Key of a metric to show next to the loss, and the word for it; None for the loss alone.
    """

    def __init__(
        self,
        description: str,
        *,
        first_step: int,
        num_steps: int,
        every_s: float,
        shown: bool,
        score: tuple[str, str] | None = None,
    ) -> None:
        self.description = description
        self.num_steps = num_steps
        self._every_s = every_s
        self._shown = shown
        self._score = score
        self._last_line = time.monotonic()
        self._notes: tuple[str, ...] = ()
        self._line = self._line_at(first_step, None)
        self._drawn = LiveLine(lambda: self._line) if shown and can_draw() else None

    def __enter__(self) -> Self:
        if self._drawn is not None:
            self._drawn.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._drawn is not None:
            self._drawn.stop()

    def note(self, metrics: Mapping[str, float]) -> None:
        """Set the newest metrics, which are shown next to the steps from now on."""
        self._notes = tuple(_shown_metrics(metrics, self._score))

    def show(self, step: int, *, left_s: float | None = None) -> None:
        """Show that `step` steps are finished and, if known, how many seconds the others will take."""
        if not self._shown:
            return
        self._line = line = self._line_at(step, left_s)
        if self._drawn is not None:
            return
        now = time.monotonic()
        if now - self._last_line >= self._every_s or step == self.num_steps:
            self._last_line = now
            say(f"{line.what}: {', '.join(part for part in (line.count, *line.notes, line.left) if part)}")

    def _line_at(self, step: int, left_s: float | None) -> ProgressLine:
        return ProgressLine(
            what=self.description,
            done=step,
            total=self.num_steps,
            count=f"step {step:,} of {self.num_steps:,}",
            left="" if left_s is None or step >= self.num_steps else f"{duration(left_s)} left",
            notes=self._notes,
        )


def _shown_metrics(metrics: Mapping[str, float], score: tuple[str, str] | None) -> list[str]:
    shown = (
        ("train/loss", "loss {:.3f}", 1),
        *([] if score is None else [(score[0], f"{score[1]} {{:.3f}}", 1)]),
        ("perf/tokens_per_s", "{:,.0f} tokens/s", 1),
        ("perf/mfu", "{:.0f} % utilised", 100),
        ("perf/data_wait_fraction", "{:.1f} % waiting for data", 100),
        ("perf/memory_bytes", "{:.1f} GiB", 2**-30),
    )
    return [pattern.format(metrics[key] * scale) for key, pattern, scale in shown if key in metrics]
