"""The process group of several ranks: how they meet, what the first one decides, and what ends it when one is lost."""

import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from bertline.foundation.errors import BertlineError, MachineError, PeerLostError
from bertline.training.devices import Machine, several_ranks
from bertline.training.interruption import TrainingInterrupted

_Decision = TypeVar("_Decision")

# Ranks may be far apart before they meet: they import from a slow file system, or their nodes start late.
_LEAST_JOIN_S = 120.0
# Key in the store where ranks met: the error of the first rank that failed by itself.
_FAILED = "failed"


@contextmanager
def process_group(machine: Machine, peer_timeout_s: float) -> Iterator[None]:
    """Join the process group for the block, if several ranks were started; Lightning uses the one that is there.

    An error of the block ends the group, so that no other rank waits for this one.

    Raises:
        PeerLostError: Another rank did not join, or is lost; in place of the error of an operation.
        MachineError: Another rank failed, and would fail again; on the first rank.
    """
    ranks = machine.ranks
    if ranks.world_size == 1:
        yield
        return
    store = _join(machine, timeout_s=peer_timeout_s, join_s=max(_LEAST_JOIN_S, peer_timeout_s))
    name = f"rank {ranks.rank} on {socket.gethostname()} (process {os.getpid()})"
    try:
        yield
    except TrainingInterrupted:  # all ranks leave together
        dist.destroy_process_group()
        raise
    except BaseException as error:
        # A launcher that sees a rank fail stops the others: the request to stop may come while the error is handled.
        cause = error if isinstance(error, Exception) else error.__context__
        is_alone = isinstance(cause, Exception) and is_of_connection(cause)
        if isinstance(error, Exception) and not is_alone:
            with suppress(RuntimeError):  # the store is lost
                store.compare_set(_FAILED, "", f"{name} failed: {type(error).__name__}: {error}"[:2000])
        _close_connections()
        if not is_alone:
            raise
        # Only the first rank reads the store, which is on its machine: elsewhere that may block for many minutes.
        if ranks.is_first and store.check([_FAILED]):
            raise MachineError(store.get(_FAILED).decode()) from cause
        raise PeerLostError(
            f"{name} is cut off from the others ({cause}). Another rank was killed or stopped, it hangs, or its "
            "machine is down or cannot be reached; if it is only slow, raise runtime.peer_timeout_s. All checkpoints "
            "that were saved are whole: see the output of all ranks, then start the run again, and it resumes."
        ) from cause
    dist.destroy_process_group()


def _join(machine: Machine, *, timeout_s: float, join_s: float) -> dist.Store:
    ranks, on_gpu = machine.ranks, machine.device.type == "cuda"
    if on_gpu:
        torch.cuda.set_device(machine.device)
        # NCCL's watchdog shall abort the operation and not the process, which then says which rank is lost.
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2")
    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
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
        return store
    except RuntimeError as error:  # DistNetworkError, DistStoreError, and gloo's
        if isinstance(error, dist.DistBackendError):  # of NCCL, whose settings or devices are wrong
            raise
        raise PeerLostError(
            f"rank {ranks.rank} could not join all {ranks.world_size} ranks at {address} within {join_s:.0f} s "
            f"({error}). A rank failed before, was not started, or a firewall is between them: "
            "see the output of all ranks; make doctor checks the network. Then start all ranks again."
        ) from error


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


def decide_on_first_rank(decide: Callable[[], _Decision], device: torch.device) -> _Decision:
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
