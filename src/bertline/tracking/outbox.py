"""A queue between the work and the tracking server: the work never waits for the server and never fails with it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from bertline.foundation.progress import say, warn
from bertline.tracking.addresses import masked

_POLL_S = 1.0
_LONGEST_WAIT_S = 30.0
# Seconds without a sign of life after which a stage stops waiting for the server at its end. All waiters share one
# deadline: once it has passed for the first, the others return at once.
_PATIENCE_S = 10.0
_UPLOAD_BYTES_PER_S = 1e6


class RefusedError(Exception):
    """The server understood and said no: trying again would not help."""


class LeftError(Exception):
    """The server could not take it now, and it is kept elsewhere: what comes after does not wait for it."""


class Outbox:
    """Runs what is put in, in order, on one background thread.

    A task that raises `RefusedError` is dropped with a warning, one that raises `LeftError` without. One that raises
    anything else (the server is away, the database is locked) stays at the head and is tried again, with one warning
    an outage. Feeds are polled whenever nothing is waiting.

    Args:
        target: Address of the server, for messages.
        patience_s: `flush` and `close` return when nothing has been recorded for so long.
    """

    def __init__(self, target: str, *, patience_s: float = _PATIENCE_S) -> None:
        self._target = masked(target)
        self._patience_s = patience_s
        self._tasks: deque[tuple[Callable[[], None], bool, float]] = deque()
        self._sign_of_life_s = time.monotonic()
        self._waiting_since_s: float | None = None
        self._feeds: list[Callable[[], None]] = []
        self._changed = threading.Condition()
        self._hurry = 0  # how many `flush` calls are waiting: then there is one last try instead of a long wait
        self._closed = False
        self._wait_s = 0.0
        self._passes = 0
        self.dead = False
        self._thread = threading.Thread(target=self._run, name="tracking", daemon=True)
        self._thread.start()

    @property
    def away(self) -> bool:
        """Whether the last try failed."""
        return self._wait_s > 0

    def put(self, task: Callable[[], None], *, essential: bool = False, num_bytes: int = 0) -> None:
        """Queue a task. If an essential one is refused, nothing more is recorded.

        Args:
            task: The call.
            essential: See above.
            num_bytes: Size of an upload in bytes; each megabyte extends the deadline by a second.
        """
        with self._changed:
            self._tasks.append((task, essential, num_bytes / _UPLOAD_BYTES_PER_S))
            self._changed.notify_all()

    def add_feed(self, poll: Callable[[], None]) -> None:
        """Call `poll` about once a second from now on."""
        with self._changed:
            self._feeds.append(poll)

    def remove_feed(self, poll: Callable[[], None]) -> None:
        """Poll no more."""
        with self._changed:
            self._feeds = [feed for feed in self._feeds if feed != poll]

    def flush(self) -> bool:
        """Wait until everything put in before is recorded; False if the server stays away or silent."""
        with self._changed:
            self._hurry += 1
            self._changed.notify_all()
            passes = self._passes
            # A pass that was already under way may have looked before the last task came, so two are awaited.
            while not self.dead and self._thread.is_alive() and (self._tasks or self._passes < passes + 2):
                if (self.away and self._passes >= passes + 2) or self._is_silent():
                    break
                self._changed.wait(_POLL_S)
            self._hurry -= 1
            return not (self._tasks or self.away or self.dead or self._is_silent())

    def close(self) -> bool:
        """Flush, then end the thread; returns whether all is recorded, or refused."""
        done = self.flush() or self.dead
        if not done:
            warn(
                f"{self._target} did not take all records. They are kept under runs/, and the next stage that reaches "
                "it sends them."
            )
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        # A thread inside a call that hangs ends with the process.
        self._thread.join(timeout=_LONGEST_WAIT_S if done else _POLL_S)
        return done

    def _is_silent(self) -> bool:
        """Whether those who wait have done so long enough. The lock is held."""
        if self._waiting_since_s is None or self._waiting_since_s < self._sign_of_life_s:
            self._waiting_since_s = time.monotonic()
        upload_s = self._tasks[0][2] if self._tasks else 0.0
        return time.monotonic() - self._waiting_since_s > self._patience_s + upload_s

    def _run(self) -> None:
        while not self._closed and not self.dead:
            self._one_pass()
            with self._changed:
                self._passes += 1
                self._changed.notify_all()
                if not self._closed and (self.away or not self._tasks):
                    pause = 0.05 if self._hurry else self._wait_s or _POLL_S
                    self._changed.wait(pause)

    def _one_pass(self) -> None:
        try:
            while self._tasks and not self.dead:
                task, essential, _ = self._tasks[0]
                self._attempt(task, essential=essential)
                self._tasks.popleft()
            for poll in tuple(self._feeds):
                self._attempt(poll, essential=False)
        except Exception as error:
            if not self.away:
                warn(f"{self._target} cannot be reached ({_first_line(error)}). The work goes on; records are kept.")
            self._wait_s = min(max(2 * self._wait_s, _POLL_S), _LONGEST_WAIT_S)
        else:
            if self.away:
                say(f"{self._target} can be reached again.")
            self._wait_s = 0.0

    def _attempt(self, task: Callable[[], None], *, essential: bool) -> None:
        try:
            task()
        except LeftError:
            # Counted as no answer: an answer restarts the deadline, and the stage would wait for a silent server twice.
            return
        except RefusedError as error:
            warn(f"{self._target} refused a record: {_first_line(error)}")
            self.remove_feed(task)
            self.dead = self.dead or essential
        self._sign_of_life_s = time.monotonic()


def _first_line(error: Exception) -> str:
    text = str(error).strip().split("\n")[0].split(" (Caused by")[0]
    return masked(text[:200]) or type(error).__name__
