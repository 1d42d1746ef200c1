"""Ranks that watch one another: a lost or stalled one ends the training of all, with a message that names it.

A process group alone notices a killed peer at best (gloo), and a stopped process or a dead link only after its own
timeout. That one must be long, because it also counts the time in which one rank validates, saves or compiles. So each
rank has a thread that tells the others, through the store of the process group, that the process is alive and where it
is in training. The first rank judges; the others watch the first one.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from bertline.foundation.errors import MachineError, PeerLostError
from bertline.foundation.progress import warn
from bertline.foundation.signals import RECEIVED
from bertline.training.devices import Ranks
from bertline.training.interruption import TrainingInterrupted
from bertline.training.process_group import cut_connections

_STAGES = ("waits for its next batch", "computes", "waits for the gradients of the others")
DATA, COMPUTE, EXCHANGE = range(3)
"""Where a rank is in a step."""
_ADVICE = (
    "All checkpoints that were saved are whole: see the log of that machine, then start the run again, and it resumes."
)
_LONGEST_INTERVAL_S = 2.0
# A rank that was silent for so many intervals when a connection broke is the one that broke it.
_SUSPECT_INTERVALS = 2.5
_PATIENCE_INTERVALS = 6
# After a request to stop, which may be a launcher's that saw a rank fail and will soon kill the others.
_STOPPING_INTERVALS = 5
# For the main thread to fail in the collective operation that was cut; else the process is ended where it hangs.
_TO_FAIL_S = 20.0
# Of a process's trainings: all ranks count them alike, and the keys of an earlier one stay in the store.
_numbers = itertools.count()


@dataclass
class _Seen:
    """What a rank last told, and when that was new to this one."""

    told: Mapping[str, Any]
    at: float
    behind_since: float | None = None

    def take(self, told: Mapping[str, Any], now: float) -> None:
        if told["beat"] != self.told["beat"]:
            if _place(told) != _place(self.told):
                self.behind_since = None
            self.told, self.at = told, now


class Peers:
    """Watches the ranks that train with this one, from its construction to `close`. One rank alone watches nobody.

    Args:
        ranks: This rank and the number of all.
        timeout_s: `runtime.peer_timeout_s`.
    """

    def __init__(self, ranks: Ranks, timeout_s: float) -> None:
        self.lost: str | None = None
        """Why training must end; None as long as all ranks are well."""
        self._error: type[MachineError] = PeerLostError
        self._ranks = ranks
        self._interval_s = min(_LONGEST_INTERVAL_S, timeout_s / 10)
        # To be found, told to the others and acted upon within the timeout.
        self._silence_s = timeout_s - 2.5 * self._interval_s
        self._number = next(_numbers)
        self._own: dict[str, Any] = {"host": socket.gethostname(), "pid": os.getpid(), "beat": 0, "left": None}
        self._own.update(step=0, stage=DATA, is_busy=True)
        self._seen: dict[int, _Seen] = {}
        self._contact = time.monotonic()
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []
        if ranks.world_size > 1:
            self._store = _connected(timeout_s)
            self._threads = [threading.Thread(target=each, daemon=True) for each in (self._exchange, self._judge)]
        for thread in self._threads:
            thread.start()

    def at(self, step: int, stage: int, *, is_busy: bool = False) -> None:
        """Tell where this rank is, after `step` finished steps; cheap enough for every step.

        Args:
            step: Number of finished steps.
            stage: `DATA`, `COMPUTE` or `EXCHANGE`.
            is_busy: Whether the others must wait however long this takes, as for compilation.

        Raises:
            PeerLostError: Another rank is lost.
            MachineError: Another rank failed.
        """
        self._own.update(step=step, stage=stage, is_busy=is_busy)
        self.check()

    def check(self) -> None:
        """Return if all ranks are well; what a sum over ranks gave before this call can then be used.

        Raises:
            PeerLostError: Another rank is lost.
            MachineError: Another rank failed.
        """
        if self.lost is not None:
            raise self._error(self.lost)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Make the others wait for the block, however long it takes: it validates, saves or measures.

        Raises:
            PeerLostError: Another rank was lost meanwhile.
            MachineError: Another rank failed meanwhile.
        """
        before, self._own["is_busy"] = self._own["is_busy"], True
        yield
        self._own["is_busy"] = before
        self.check()

    def reason(self, error: Exception) -> MachineError | None:
        """Return why a collective operation failed: which rank is missing; None if the error has another cause."""
        if self._ranks.world_size == 1 or not (self.lost or _is_of_connection(error)):
            return None
        end = time.monotonic() + _PATIENCE_INTERVALS * self._interval_s
        while self.lost is None and time.monotonic() < end:
            with suppress(KeyboardInterrupt):  # training is ending already
                time.sleep(self._interval_s / 4)
                self._find_silent(_SUSPECT_INTERVALS * self._interval_s)
        host = self._own["host"]
        unknown = f"rank {self._ranks.rank} on {host} lost its connection to another rank ({error}). {_ADVICE}"
        return self._error(self.lost or unknown)

    def close(self, error: BaseException | None = None) -> None:
        """End the watch, and tell the others that this rank leaves: because of this error, or as agreed."""
        self._own["left"] = "" if error is None else f"{type(error).__name__}: {error}"[:2000]
        self._closed.set()
        for thread in self._threads:
            thread.join(timeout=2 * self._interval_s)

    def _exchange(self) -> None:
        """Tell the state of this rank and read those of the others (on the first rank), or that of the first one."""
        first = self._ranks.is_first
        # The first one reads its own state too, to judge itself as it judges the others.
        watched = list(range(self._ranks.world_size)) if first else [0]
        is_last = False
        while not is_last:
            is_last = self._closed.wait(self._interval_s if self._own["beat"] else 0)
            # A store that cannot be reached any more is noticed by `_judge`, even if it blocks this thread.
            with suppress(RuntimeError):
                self._own["beat"] += 1
                self._store.set(self._key(self._ranks.rank), json.dumps(self._own))
                if first and self.lost:
                    self._store.set(self._key("lost"), self.lost)
                present = [rank for rank in watched if rank in self._seen or self._store.check([self._key(rank)])]
                found = self._store.multi_get([self._key(rank) for rank in present]) if present else []
                now = time.monotonic()
                for rank, told in zip(present, map(json.loads, found), strict=True):
                    self._seen.setdefault(rank, _Seen(told, now)).take(told, now)
                if not first and self.lost is None and self._store.check([self._key("lost")]):
                    self._end(self._store.get(self._key("lost")).decode())
                self._contact = time.monotonic()

    def _judge(self) -> None:
        while not self._closed.wait(self._interval_s) and self.lost is None:
            is_stopping = RECEIVED.first is not None
            self._find_silent(
                min(self._silence_s, _STOPPING_INTERVALS * self._interval_s) if is_stopping else self._silence_s
            )
            if self._ranks.is_first:
                self._find_stalled()

    def _find_silent(self, most_s: float) -> None:
        """Find a rank that told nothing for so long, or that it failed."""
        now = time.monotonic()
        if not self._ranks.is_first and now - self._contact > most_s and not self._has_left(0):
            return self._end(f"{self._named(0)} cannot be reached for {now - self._contact:.0f} s. {_ADVICE}")
        for rank, seen in list(self._seen.items()):
            left = seen.told["left"]
            if left:
                self._error = MachineError  # it would fail again
                return self._end(f"{self._named(rank)} failed: {left}")
            if left is None and self._silent_s(seen, now) > most_s:
                return self._end(
                    f"{self._named(rank)} has given no sign of life for {now - seen.at:.0f} s: its process was killed "
                    f"or stopped, or its machine is down or cannot be reached. {_ADVICE}"
                )
        return None

    def _find_stalled(self) -> None:
        """Find a rank, be it this one, that another one has been waiting for all the time."""
        now = time.monotonic()
        known = list(self._seen.items())
        for rank, seen in known:
            if seen.told["is_busy"] or _place(seen.told) >= max(_place(other.told) for _, other in known):
                seen.behind_since = None
                continue
            seen.behind_since = seen.behind_since or now
            # One that has been silent since is not known to be slow: it gives a sign soon, or its silence is found.
            is_heard = self._silent_s(seen, now) <= _SUSPECT_INTERVALS * self._interval_s
            if is_heard and now - seen.behind_since > self._silence_s:
                return self._end(self._stalled(rank, seen.told, now - seen.behind_since))
        return None

    def _silent_s(self, seen: _Seen, now: float) -> float:
        """Seconds of a rank's silence; what this rank could not read is not the other one's."""
        return min(now, self._contact) - seen.at

    def _stalled(self, rank: int, told: Mapping[str, Any], seconds: float) -> str:
        return (
            f"{self._named(rank)} has kept the others waiting for {seconds:.0f} s: in step {told['step'] + 1:,} it "
            f"{_STAGES[told['stage']]}. If it is only slow, raise runtime.peer_timeout_s. {_ADVICE}"
        )

    def _has_left(self, rank: int) -> bool:
        return rank in self._seen and self._seen[rank].told["left"] is not None

    def _named(self, rank: int) -> str:
        if rank not in self._seen:
            return f"rank {rank}, at {os.environ.get('MASTER_ADDR', 'an unknown address')},"
        told = self._seen[rank].told
        return f"rank {rank} on {told['host']} (process {told['pid']})"

    def _key(self, of: int | str) -> str:
        return f"bertline/peers/{self._number}/{of}"

    def _end(self, why: str) -> None:
        """Make this rank fail: in the collective operation in which it waits, or at its next call of this object."""
        if self.lost is not None or self._closed.is_set():
            return
        self.lost = why
        cut_connections()
        threading.Thread(target=self._end_hard, daemon=True).start()

    def _end_hard(self) -> None:
        # A rank that validates or saves ends by itself when it is done.
        since = time.monotonic()
        while time.monotonic() - since < _TO_FAIL_S:
            if self._closed.wait(1.0):
                return
            if self._own["is_busy"]:
                since = time.monotonic()
        warn(f"{self.lost} This process cannot leave the operation in which it waits, and is ended.")
        os._exit(1)


@contextmanager
def watching(ranks: Ranks, timeout_s: float) -> Iterator[Peers]:
    """Watch the other ranks during the block, which all ranks enter and leave together.

    Args:
        ranks: This rank and the number of all.
        timeout_s: `runtime.peer_timeout_s`.

    Raises:
        PeerLostError: Another rank was lost or stalled; in place of the error of a collective operation.
        MachineError: Another rank failed; likewise.
    """
    peers = Peers(ranks, timeout_s)
    try:
        yield peers
    except TrainingInterrupted:
        peers.close()
        raise
    except BaseException as error:
        # A launcher that sees a rank fail stops the others: the request to stop may come while the error is handled.
        cause = error if isinstance(error, Exception) else error.__context__
        reason = peers.reason(cause) if isinstance(cause, Exception) else None
        peers.close(error if reason is None else None)
        if reason is not None:
            raise reason from cause
        raise
    peers.close()


def _place(told: Mapping[str, Any]) -> tuple[int, int]:
    return told["step"], told["stage"]


def _is_of_connection(error: Exception) -> bool:
    if isinstance(error, dist.DistError):
        return True
    # Gloo raises a RuntimeError. Errors of other types hold these words in a path, or are of another connection.
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(word in text for word in ("gloo", "nccl", "connection"))


def _connected(timeout_s: float) -> dist.Store:
    """Return a connection of its own to the store of the process group: an operation blocks the connection it uses."""
    return dist.TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=False,
        wait_for_workers=False,
        timeout=timedelta(seconds=timeout_s),
    )
