"""The process group of several ranks: joining it, decisions of its first rank, and its end in an emergency."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist

from bertline.foundation.errors import BertlineError
from bertline.training.devices import Machine, several_ranks

T = TypeVar("T")


@contextmanager
def process_group(machine: Machine) -> Iterator[None]:
    """Join the process group for the block, if several ranks were started; Lightning uses the one that is there.

    An error of the block cuts the connections, so that no other rank waits for this one.
    """
    if machine.ranks.world_size == 1:
        yield
        return
    on_gpu = machine.device.type == "cuda"
    if on_gpu:
        torch.cuda.set_device(machine.device)
    dist.init_process_group("nccl" if on_gpu else "gloo", device_id=machine.device if on_gpu else None)
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
