"""Progress of a training: its time without pauses, and a bar on a terminal or a line every few seconds in a log."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, Self

from bertline.foundation.formats import duration
from bertline.foundation.progress import ProgressLine, ShownLine


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
    """Shows steps, the newest metrics and the time left, within a block if a bar is to be drawn.

    Args:
        first_step: Number of steps finished before this start; `num_steps` are those of the whole run.
        every_s: Seconds between lines in a log.
        shown: Whether this process shows anything; true on the first rank.
        draws: Whether a terminal shows a bar.
        score: Key of a metric to show next to the loss, and the word for it; None for the loss alone.
    """

    def __init__(
        self,
        description: str,
        *,
        first_step: int,
        num_steps: int,
        every_s: float,
        shown: bool = True,
        draws: bool = True,
        score: tuple[str, str] | None = None,
    ) -> None:
        self.description, self.num_steps = description, num_steps
        self._step, self._left = first_step, ""
        self._is_shown, self._score = shown, score
        self._notes: tuple[str, ...] = ()
        self._line = ShownLine(self._line_now, every_s=every_s, draws=draws and shown)

    def __enter__(self) -> Self:
        self._line.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._line.__exit__(*error)

    def note(self, metrics: Mapping[str, float]) -> None:
        """Set the newest metrics, which are shown next to the steps from now on."""
        self._notes = tuple(_shown_metrics(metrics, self._score))

    def is_due(self, step: int) -> bool:
        """Return whether `show` would log a line."""
        return self._line.is_due() or step == self.num_steps

    def show(self, step: int, *, left_s: float | None = None, of_all_s: float | None = None) -> None:
        """Show that `step` steps are finished and, if known, how long the others will take, and all work with them."""
        left = [] if left_s is None or step == self.num_steps else [f"{duration(left_s)} left"]
        left += [] if of_all_s is None else [f"about {duration(of_all_s)} of all"]
        self._step, self._left = step, ", ".join(left)
        if self._is_shown:
            self._line.log(at_once=step == self.num_steps)

    def _line_now(self) -> ProgressLine:
        return ProgressLine(
            what=self.description,
            done=self._step,
            total=self.num_steps,
            count=f"step {self._step:,} of {self.num_steps:,}",
            left=self._left,
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
