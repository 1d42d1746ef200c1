"""Queue between the pipeline and the tracking server, so that stages neither wait for the server nor fail with it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from bertline.foundation.progress import say, warn
from bertline.tracking.config import masked

_POLL_S = 1.0
_LONGEST_WAIT_S = 30.0
# Seconds without a response after which a stage stops waiting for the server at its end. All waiting calls share one
# deadline: once it has passed for the first, the others return immediately.
_PATIENCE_S = 10.0
_UPLOAD_BYTES_PER_S = 1e6


class RefusedError(Exception):
    """The server rejected the request; retrying does not help."""


class LeftError(Exception):
    """The server could not take the records now. They are stored elsewhere, and later tasks do not wait for them."""


class Outbox:
    """Runs queued tasks in order on a background thread.

    A task that raises `RefusedError` is dropped with a warning, a task that raises `LeftError` without. A task that
    raises another error (the server is unreachable, the database is locked) stays at the head of the queue and is
    retried, with one warning per outage. Feeds are polled when the queue is empty.

    Args:
        target: Address of the server, for messages.
        patience_s: Seconds without progress after which `flush` and `close` return, plus the allowance for the size of
            the upload at the head of the queue.
    """

    def __init__(self, target: str, *, patience_s: float = _PATIENCE_S) -> None:
        self._target = masked(target)
        self._patience_s = patience_s
        self._tasks: deque[tuple[Callable[[], None], bool, float]] = deque()
        self._sign_of_life_s = time.monotonic()
        self._waiting_since_s: float | None = None
        self._feeds: list[Callable[[], None]] = []
        self._changed = threading.Condition()
        self._hurry = 0  # number of waiting `flush` calls; while there are any, retries do not wait long
        self._closed = False
        self._wait_s = 0.0
        self._passes = 0
        self.dead = False
        self._thread = threading.Thread(target=self._run, name="tracking", daemon=True)
        self._thread.start()

    @property
    def away(self) -> bool:
        """Whether the last attempt failed."""
        return self._wait_s > 0

    def put(self, task: Callable[[], None], *, essential: bool = False, num_bytes: int = 0) -> None:
        """Queue a task.

        Args:
            task: Function to call.
            essential: Whether recording stops if the task is refused.
            num_bytes: Size of an upload in bytes; each megabyte extends the deadline by one second.
        """
        with self._changed:
            self._tasks.append((task, essential, num_bytes / _UPLOAD_BYTES_PER_S))
            self._changed.notify_all()

    def add_feed(self, poll: Callable[[], None]) -> None:
        """Start calling `poll` about once per second."""
        with self._changed:
            self._feeds.append(poll)

    def remove_feed(self, poll: Callable[[], None]) -> None:
        """Stop calling `poll`."""
        with self._changed:
            self._feeds = [feed for feed in self._feeds if feed != poll]

    def flush(self) -> bool:
        """Wait until all queued tasks are done.

        Returns:
            False if tasks remain, the server is unreachable or silent, or it refused an essential task.
        """
        with self._changed:
            self._hurry += 1
            self._changed.notify_all()
            passes = self._passes
            # A pass in progress may have started before the last task was queued, so wait for two.
            while not self.dead and self._thread.is_alive() and (self._tasks or self._passes < passes + 2):
                if (self.away and self._passes >= passes + 2) or self._is_silent():
                    break
                self._changed.wait(_POLL_S)
            self._hurry -= 1
            return not (self._tasks or self.away or self.dead or self._is_silent())

    def close(self) -> bool:
        """Flush and end the thread; return whether all tasks are recorded or refused."""
        done = self.flush() or self.dead
        if not done:
            warn(
                f"{self._target} did not take all records. They are kept under runs/. The next stage that reaches it "
                "sends them, and so does: bertline send"
            )
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        # A thread in a hanging call ends with the process (it is a daemon).
        self._thread.join(timeout=_LONGEST_WAIT_S if done else _POLL_S)
        return done

    def _is_silent(self) -> bool:
        """Return whether the deadline of waiting calls has passed. The caller holds the lock."""
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
                warn(f"{self._target} cannot be reached ({_first_line(error)}). The work continues; records are kept.")
            self._wait_s = min(max(2 * self._wait_s, _POLL_S), _LONGEST_WAIT_S)
        else:
            if self.away:
                say(f"{self._target} can be reached again.")
            self._wait_s = 0.0

    def _attempt(self, task: Callable[[], None], *, essential: bool) -> None:
        try:
            task()
        except LeftError:
            # Not a response: a response restarts the deadline, and the stage would wait for a silent server twice.
            return
        except RefusedError as error:
            warn(f"{self._target} refused a record: {_first_line(error)}")
            self.remove_feed(task)
            self.dead = self.dead or essential
        self._sign_of_life_s = time.monotonic()


class AtOnce(Outbox):
    """Outbox that runs each task immediately; an unreachable server is an error."""

    def __init__(self) -> None:
        self.dead = False

    def put(self, task: Callable[[], None], *, essential: bool = False, num_bytes: int = 0) -> None:
        self._attempt(task, essential=essential)

    def add_feed(self, poll: Callable[[], None]) -> None:
        pass

    def remove_feed(self, poll: Callable[[], None]) -> None:
        pass

    def flush(self) -> bool:
        return not self.dead


def _first_line(error: Exception) -> str:
    text = str(error).strip().split("\n")[0].split(" (Caused by")[0]
    return masked(text[:200]) or type(error).__name__
