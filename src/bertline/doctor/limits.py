"""Checks with time limits: what hangs (a dead server, a network file system) becomes a red line, and nothing waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bertline.doctor.finding import Finding, red
from bertline.foundation.errors import BertlineError
from bertline.tracking.config import masked


@dataclass(frozen=True, slots=True)
class Deadline:
    """Moment at which the examination must be over.

    Args:
        at_s: The moment, in seconds of the monotonic clock.
    """

    at_s: float

    @property
    def left_s(self) -> float:
        """Seconds until then; never negative."""
        return max(0.0, self.at_s - time.monotonic())


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """A check to run."""

    name: str
    run: Callable[[], Iterable[Finding]]
    limit_s: float
    advice: str
    """What to do if it does not end within its limit, or fails in a way that it does not know."""


def run_checks(checks: Sequence[Check], deadline: Deadline, *, together: bool = False) -> list[Finding]:
    """Run checks, each within its limit and all before the deadline.

    A check that hangs is left behind in its thread, which ends with the process (leave it with `os._exit`: a thread may
    hang in the system for ever).

    Args:
        checks: The checks.
        deadline: When all must be over.
        together: Whether to run them at the same time; for those that mostly wait.

    Returns:
        What they found, in the order of the checks.
    """
    if together:
        attempts = [_Attempt(check) for check in checks]
        return [finding for attempt in attempts for finding in attempt.outcome(deadline)]
    return [finding for check in checks for finding in _Attempt(check).outcome(deadline)]


class _Attempt:
    """A check that runs in a thread of its own."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._findings: list[Finding] = []
        self._started_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"doctor {check.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        check = self._check
        try:
            self._findings = list(check.run())
        except BertlineError as error:
            found, _, fix = masked(str(error)).partition(". ")
            self._findings = [red(check.name, found, fix or check.advice)]
        except Exception as error:
            said = masked(f"{type(error).__name__}: {error}".splitlines()[0])
            self._findings = [red(check.name, said, check.advice)]

    def outcome(self, deadline: Deadline) -> list[Finding]:
        limit_s = self._check.limit_s - (time.monotonic() - self._started_s)
        self._thread.join(min(max(0.0, limit_s), deadline.left_s))
        if not self._thread.is_alive():
            return self._findings
        waited_s = time.monotonic() - self._started_s
        return [red(self._check.name, f"no answer within {waited_s:.0f} s", self._check.advice)]
