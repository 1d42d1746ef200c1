"""A rank that joins a process group with another one, for tests of what both then say."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from bertline.foundation.errors import PeerLostError
from bertline.training import process_group
from bertline.training.devices import Machine, Ranks, sum_over_ranks


def join(rank: int, port: int, out: Path, *, fails: bool) -> None:
    """Join and sum, or fail between joining and connecting, as rank 1 does; write to `out` what came of it."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if fails:
        connect = dist.init_process_group

        # Only the connection that never comes has a short limit: however slowly ranks start, all of them join.
        def connected(*args: Any, **named: Any) -> None:
            if rank == 1:
                os._exit(9)
            connect(*args, **{**named, "timeout": timedelta(seconds=0.5)})

        dist.init_process_group = connected
    cpu = torch.device("cpu")
    machine = Machine(device=cpu, precision="fp32", compile=False, ranks=Ranks(rank=rank, world_size=2))
    try:
        with process_group.process_group(machine, 600.0):
            total = sum_over_ranks([1.0], cpu)
            limit = dist.distributed_c10d._get_default_group()._get_backend(cpu).options._timeout
            out.write_text(f"sum {float(total[0])} limit_s {limit.total_seconds()}")
    except PeerLostError as error:
        out.write_text(f"lost {error}")
