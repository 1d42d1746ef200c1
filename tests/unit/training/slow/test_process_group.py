"""The process group of several ranks: how long ranks wait for one another while it is formed, and afterwards."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from ports import free_port

RANK = """
import os, sys
from datetime import timedelta
import torch, torch.distributed as dist
from bertline.foundation.errors import PeerLostError
from bertline.training import process_group
from bertline.training.devices import Machine, Ranks, sum_over_ranks

what, rank = sys.argv[1], int(sys.argv[2])
connect = dist.init_process_group
if what == "fails after it joined":
    # Only the connection that never comes has a short limit: however slowly ranks start, all of them join.
    short = lambda *args, **named: connect(*args, **{**named, "timeout": timedelta(seconds=0.5)})
    process_group.dist.init_process_group = (lambda *args, **named: os._exit(9)) if rank == 1 else short
cpu = torch.device("cpu")
machine = Machine(device=cpu, precision="fp32", compile=False, ranks=Ranks(rank=rank, world_size=2))
try:
    with process_group.process_group(machine, 600.0):
        total = sum_over_ranks([1.0], cpu)
        limit = dist.distributed_c10d._get_default_group()._get_backend(cpu).options._timeout
        print("sum", total, "limit_s", limit.total_seconds())
except PeerLostError as error:
    print("lost", error)
"""


def outputs(folder: Path, what: str) -> list[str]:
    """What two ranks print."""
    port = str(free_port())
    program = folder / "rank.py"
    program.write_text(RANK)
    ranks = [
        subprocess.Popen(
            ["env", "MASTER_ADDR=127.0.0.1", f"MASTER_PORT={port}", sys.executable, str(program), what, str(rank)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        return [rank.communicate(timeout=600)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()


def test_a_rank_that_fails_between_joining_and_connecting_is_lost_and_not_waited_for(tmp_path: Path) -> None:
    said, _ = outputs(tmp_path, "fails after it joined")
    assert "rank 0 met all others, but could not be connected to them within 2400 s" in said
    assert "make doctor" in said


def test_a_rank_that_has_joined_is_waited_for_however_long_it_takes(tmp_path: Path) -> None:
    for said in outputs(tmp_path, "works"):
        assert "sum [2.0]" in said
        # Longer than any compilation, validation or saving; `training.peers` finds those that hang.
        assert float(said.split("limit_s")[1]) > timedelta(days=1).total_seconds()
