"""The process group of several ranks: how they meet, what the first one decides, and who is named when one is lost.

PyTorch ends the wait for a rank that is lost, with an error that names an address at best. So the ranks that are left
call the roll through the store where they met: who does not answer is lost, or hangs.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from bertline.foundation.errors import BertlineError, MachineError, PeerLostError
from bertline.training.devices import Machine, Ranks, several_ranks
from bertline.training.interruption import TrainingInterrupted

T = TypeVar("T")

_LEAST_JOIN_S = 120.0
"""Ranks may be far apart before they meet: they import from a slow file system, or their nodes start late."""
_ROLL_CALL_S = 10.0
"""Longest time to wait for answers: ranks notice that one is lost at different places of a step."""
_LOOK_EVERY_S = 0.05
_LONGEST_ANSWER = 2000
_ADVICE = (
    "All checkpoints that were saved are whole: see the log of that machine, then start the run again, and it resumes."
)


@contextmanager
def process_group(machine: Machine, peer_timeout_s: float) -> Iterator[None]:
    """Join the process group for the block, if several ranks were started; Lightning uses the one that is there.

    An error of the block ends the group, so that no other rank waits for this one.

    Raises:
        PeerLostError: Another rank did not join, or does not answer any more; in place of the error of an operation.
        MachineError: Another rank failed, and would fail again.
    """
    ranks = machine.ranks
    if ranks.world_size == 1:
        yield
        return
    roll_call_s = min(_ROLL_CALL_S, peer_timeout_s / 4)
    roll = _join(machine, timeout_s=peer_timeout_s - 2 * roll_call_s, join_s=max(_LEAST_JOIN_S, peer_timeout_s))
    try:
        yield
    except TrainingInterrupted:  # all ranks leave together
        dist.destroy_process_group()
        raise
    except BaseException as error:
        # A launcher that sees a rank fail stops the others: the request to stop may come while the error is handled.
        cause = error if isinstance(error, Exception) else error.__context__
        _close_connections()
        if isinstance(cause, Exception) and is_of_connection(cause):
            raise roll.error(cause, roll_call_s) from cause
        roll.call(f"{type(error).__name__}: {error}"[:_LONGEST_ANSWER], roll_call_s)
        raise
    dist.destroy_process_group()


def _join(machine: Machine, *, timeout_s: float, join_s: float) -> _Roll:
    ranks, on_gpu = machine.ranks, machine.device.type == "cuda"
    if on_gpu:
        torch.cuda.set_device(machine.device)
        # NCCL's watchdog shall abort the operation and not the process, which then says which rank is lost.
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2")
    try:
        store, _, _ = next(dist.rendezvous("env://", timeout=timedelta(seconds=join_s)))
        dist.init_process_group(
            "nccl" if on_gpu else "gloo",
            store=store,
            rank=ranks.rank,
            world_size=ranks.world_size,
            timeout=timedelta(seconds=timeout_s),
            device_id=machine.device if on_gpu else None,
        )
        return _Roll(store, ranks)
    except RuntimeError as error:  # DistNetworkError, DistStoreError, and gloo's
        if isinstance(error, dist.DistBackendError):  # of NCCL, whose settings or devices are wrong
            raise
        raise PeerLostError(
            f"rank {ranks.rank} could not join all {ranks.world_size} ranks at {_address()} within {join_s:.0f} s "
            f"({error}). A rank failed before, was not started, or a firewall is between them: "
            "see the output of all ranks; make doctor checks the network. Then start all ranks again."
        ) from error


class _Roll:
    """The names of all ranks, and the store in which those that are left answer."""

    def __init__(self, store: dist.Store, ranks: Ranks) -> None:
        self._store, self._ranks = store, ranks
        store.set(f"name/{ranks.rank}", f"rank {ranks.rank} on {socket.gethostname()} (process {os.getpid()})")
        keys = [f"name/{rank}" for rank in range(ranks.world_size)]
        store.wait(keys)
        self._names = [name.decode() for name in store.multi_get(keys)]

    def call(self, answer: str, seconds: float) -> dict[int, str] | None:
        """Return the answers of the ranks that give one within these seconds; None if the store cannot be reached.

        The answer of this rank is the error that ends it; empty if it only misses another rank.
        """
        answers: dict[int, str] | None = None

        def exchange() -> None:
            nonlocal answers
            with suppress(RuntimeError):  # the connection to the store is broken
                self._store.set(f"answer/{self._ranks.rank}", answer)
                present = self._present("answer", range(self._ranks.world_size), seconds)
                answers = {rank: self._store.get(f"answer/{rank}").decode() for rank in present}
                self._store.set(f"read/{self._ranks.rank}", "")
                if self._ranks.is_first:  # which may take the store with it
                    self._present("read", present, seconds)

        # In a thread, because a store whose machine is down blocks for many minutes.
        thread = threading.Thread(target=exchange, name="roll-call", daemon=True)
        thread.start()
        until = time.monotonic() + 2 * seconds
        while thread.is_alive() and time.monotonic() < until:
            with suppress(KeyboardInterrupt):  # of a launcher that saw a rank fail; this one is ending already
                thread.join(_LOOK_EVERY_S)
        return answers

    def _present(self, kind: str, ranks: Sequence[int], seconds: float) -> list[int]:
        """Wait until all these ranks have set their key of this kind, or time is over; return those that have."""
        until = time.monotonic() + seconds
        while True:
            present = [rank for rank in ranks if self._store.check([f"{kind}/{rank}"])]
            if len(present) == len(ranks) or time.monotonic() > until:
                return present
            time.sleep(_LOOK_EVERY_S)

    def error(self, cause: Exception, seconds: float) -> MachineError:
        """Call the roll, and return which rank is lost or has failed."""
        answers = self.call("", seconds)
        if answers is None:
            return PeerLostError(f"{self._names[0]} cannot be reached at {_address()} ({cause}). {_ADVICE}")
        for rank, answer in answers.items():
            if answer:
                return MachineError(f"{self._names[rank]} failed: {answer}")
        missing = ", ".join(name for rank, name in enumerate(self._names) if rank not in answers)
        if not missing:
            return PeerLostError(f"a connection between ranks broke ({cause}); all of them answer. {_ADVICE}")
        return PeerLostError(
            f"{missing} does not answer: it was killed or stopped, it hangs, or its machine is down or cannot be "
            f"reached. If it is only slow, raise runtime.peer_timeout_s. {_ADVICE}"
        )


def _close_connections() -> None:
    """Let the operations in which other ranks wait for this one fail.

    Gloo keeps its connections open as long as a model refers to the process group, whether that is aborted or destroyed
    (torch 2.13). So the connections of this process are shut down, except those to the store.
    """
    if dist.get_backend() == "nccl":
        dist.group.WORLD.abort()
        return
    store_port = int(os.environ["MASTER_PORT"])
    for descriptor in Path("/proc/self/fd").iterdir() if sys.platform == "linux" else []:
        with suppress(OSError), socket.socket(fileno=os.dup(int(descriptor.name))) as connection:
            is_tcp = connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM
            if is_tcp and store_port not in (connection.getsockname()[1], connection.getpeername()[1]):
                connection.shutdown(socket.SHUT_RDWR)


def is_of_connection(error: Exception) -> bool:
    """Return whether an error is one of an operation that ranks do together."""
    if isinstance(error, dist.DistError):
        return True
    # Gloo raises a RuntimeError. Errors of other types hold these words in a path, or are of another connection.
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(word in text for word in ("gloo", "nccl", "connection"))


def _address() -> str:
    return f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"


def decide_on_first_rank(decide: Callable[[], T], device: torch.device) -> T:
    """Return on every rank what the first one decides: files and clocks of several machines may differ.

    Raises:
        BertlineError: `decide` raised it on the first rank; the other ranks raise it with the same message.
    """
    if not several_ranks():
        return decide()
    decision: list[Any] = [None, None]
    error: BertlineError | None = None
    if dist.get_rank() == 0:
        try:
            decision[0] = decide()
        except BertlineError as raised:
            error, decision[1] = raised, str(raised)
    dist.broadcast_object_list(decision, src=0, device=device)
    if decision[1] is not None:
        raise error or BertlineError(decision[1])
    return decision[0]
