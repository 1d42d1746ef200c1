"""The process group of several ranks: joining it, decisions of its first rank, and its end in an emergency."""

from __future__ import annotations

import itertools
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist

from bertline.foundation.errors import BertlineError, MachineError, PeerLostError
from bertline.training.devices import Machine, Ranks, several_ranks

T = TypeVar("T")

# Ranks may be far apart before they meet: they import from a slow file system and read their inputs.
_JOIN_TIMEOUTS, _LEAST_JOIN_S = 4, 120.0
_LONGEST_LOOK_S = 1.0
# Whether the others are well is for `training.peers` to find. PyTorch's own limit, 10 minutes with NCCL and 30 with
# gloo, would end a run of which one rank compiles, measures or saves for longer.
_OPERATION_S = 7 * 24 * 3600.0
_MOST_NAMED = 8
# Of a process's groups: all ranks count them alike.
_numbers = itertools.count()


@contextmanager
def process_group(machine: Machine, peer_timeout_s: float) -> Iterator[None]:
    """Join the process group for the block, if several ranks were started; Lightning uses the one that is there.

    An error of the block cuts the connections, so that no other rank waits for this one.

    Args:
        machine: Device of this rank, and the number of all.
        peer_timeout_s: `runtime.peer_timeout_s`; ranks wait four times as long for others that have not joined, and at
            least 120 s.

    Raises:
        PeerLostError: Not all ranks have joined in time, and the message names those that are missing; or they could
            not be connected.
        MachineError: The first rank cannot serve the store through which the ranks meet.
    """
    if machine.ranks.world_size == 1:
        yield
        return
    on_gpu = machine.device.type == "cuda"
    if on_gpu:
        torch.cuda.set_device(machine.device)
    limit_s = max(_LEAST_JOIN_S, _JOIN_TIMEOUTS * peer_timeout_s)
    _connect(machine, _joined_store(machine.ranks, limit_s), limit_s)
    try:
        yield
    except Exception:
        cut_connections()
        if not on_gpu:  # NCCL might wait for the other ranks
            dist.destroy_process_group()
        raise
    except BaseException:
        dist.destroy_process_group()
        raise
    dist.destroy_process_group()


def _connect(machine: Machine, store: dist.Store, limit_s: float) -> None:
    """Form the process group of ranks that have joined a store."""
    on_gpu, ranks = machine.device.type == "cuda", machine.ranks
    try:
        dist.init_process_group(
            "nccl" if on_gpu else "gloo",
            store=store,
            rank=ranks.rank,
            world_size=ranks.world_size,
            timeout=timedelta(seconds=limit_s),
            device_id=machine.device if on_gpu else None,
        )
    except RuntimeError as error:
        if isinstance(error, dist.DistBackendError):  # of NCCL, whose settings or devices are wrong
            raise
        raise PeerLostError(
            f"rank {ranks.rank} met all others, but could not be connected to them within {limit_s:.0f} s "
            f"({str(error).splitlines()[0]}): one failed meanwhile, or a firewall is between them. See the output of "
            "all ranks; make doctor checks the network. Then start all ranks again."
        ) from error
    longest = timedelta(seconds=_OPERATION_S)
    store.set_timeout(longest)
    dist.distributed_c10d._set_pg_timeout(longest)


def _joined_store(ranks: Ranks, limit_s: float) -> dist.Store:
    """Return the store of the process group as soon as all ranks are connected to it.

    PyTorch alone would wait for a rank that failed before it joined as long as for one that computes: half an hour.
    """
    until = time.monotonic() + limit_s
    # A store of torchrun outlives a group, and the ranks if these are restarted: its addresses are no longer valid.
    prefix = f"bertline/group/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{next(_numbers)}"
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    try:
        connection = dist.TCPStore(
            address,
            port,
            is_master=ranks.is_first and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True",
            timeout=timedelta(seconds=limit_s),
            wait_for_workers=False,
            multi_tenant=True,
        )
        store = dist.PrefixStore(prefix, connection)
        _wait_for_all(store, ranks, until, limit_s)
    except RuntimeError as error:  # DistNetworkError, DistStoreError
        problem = str(error).splitlines()[0]
        if ranks.is_first:
            raise MachineError(
                f"rank 0 cannot meet the other ranks at {address}:{port} ({problem}). MASTER_ADDR must be an address "
                "of this machine, and MASTER_PORT a free port."
            ) from error
        raise PeerLostError(
            f"rank {ranks.rank} waited up to {limit_s:.0f} s for rank 0 at {address}:{port}, which cannot be reached "
            f"({problem}): it failed before all ranks were there, or a firewall is between them. See the output of "
            "rank 0; make doctor checks the network. Then start all ranks again."
        ) from error
    return store


def _wait_for_all(store: dist.Store, ranks: Ranks, until: float, limit_s: float) -> None:
    store.set(f"joined/{ranks.rank}", "")
    look_s = 0.02
    while not store.check([f"joined/{rank}" for rank in range(ranks.world_size)]):
        if time.monotonic() > until:
            missing = [rank for rank in range(ranks.world_size) if not store.check([f"joined/{rank}"])]
            if not missing:
                return
            named = ", ".join(map(str, missing[:_MOST_NAMED])) + (" and more" if len(missing) > _MOST_NAMED else "")
            raise PeerLostError(
                f"{len(missing)} of {ranks.world_size} ranks have not joined within {limit_s:.0f} s; missing: {named}. "
                "They failed before, were not started, or do not reach the first one: see their output, and make "
                "doctor. Then start all ranks again; if they only start slowly, raise runtime.peer_timeout_s."
            )
        time.sleep(look_s)
        look_s = min(2 * look_s, _LONGEST_LOOK_S)


def decide_on_first_rank(decide: Callable[[], T], device: torch.device) -> T:
    """Return on every rank what the first one decides: files and clocks of several machines may differ.

    Args:
        decide: Called on the first rank only; its result consists of what JSON has.
        device: Device of this rank.

    Raises:
        BertlineError: `decide` raised it on the first rank; the other ranks raise it with the same message.
    """
    if not several_ranks():
        return decide()
    message, error = b"", None
    if dist.get_rank() == 0:
        try:
            message = json.dumps({"decided": decide()}).encode()
        except BertlineError as raised:
            message, error = json.dumps({"error": str(raised)}).encode(), raised
    size = torch.tensor([len(message)], device=device)
    dist.broadcast(size, src=0)
    content = torch.empty(int(size), dtype=torch.uint8, device=device)
    if message:
        content.copy_(torch.frombuffer(bytearray(message), dtype=torch.uint8))
    dist.broadcast(content, src=0)
    if error is not None:
        raise error
    found = json.loads(bytes(content.tolist()))
    if "error" in found:
        raise BertlineError(found["error"])
    return found["decided"]


def cut_connections() -> None:
    """Make the collective operation in which the main thread waits fail; the process group is then of no more use.

    NCCL can be aborted. gloo's `abort` (torch 2.13) leaves a thread waiting that waits already, so its connections are
    cut: the TCP connections of this process except those to the store, which the other ranks may still need.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return
    if dist.get_backend() == "nccl":
        # Of the backend alone: without a process group, the next sum over ranks would be that of one rank.
        dist.distributed_c10d._get_default_group()._get_backend(torch.device("cuda")).abort()
        return
    store_port = int(os.environ["MASTER_PORT"])
    for descriptor in Path("/proc/self/fd").iterdir() if sys.platform == "linux" else []:
        with suppress(OSError), socket.socket(fileno=os.dup(int(descriptor.name))) as connection:
            is_tcp = connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM
            if is_tcp and store_port not in (connection.getsockname()[1], connection.getpeername()[1]):
                connection.shutdown(socket.SHUT_RDWR)
