"""Ranks of the doctor, as processes of the fork server; each may have a fault."""

from __future__ import annotations

import errno
import itertools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from bertline.doctor import communication, shared_folders
from bertline.doctor.meeting import Meeting, Place
from bertline.training.devices import Ranks
from fork_server import forking

Fault = Callable[[], None]


def adds_wrongly() -> None:
    """One value of this rank changes on its way into a sum, as by a broken cable or memory."""
    whole = dist.all_reduce

    def broken(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if tensor.dim() == 2:
            tensor[dist.get_rank(), 7] += 1
        return whole(tensor, *args, **kwargs)

    dist.all_reduce = broken


def clock_is_ahead() -> None:
    """This rank's clock is an hour ahead."""
    communication.now = lambda: time.time() + 3600.0


def hangs() -> None:
    """This rank joins the group, then does nothing for longer than the others wait."""
    communication._wrong_ranks = lambda *_: time.sleep(5)


def sees_nothing() -> None:
    """This rank's folder is another one."""
    shared_folders._WAIT_S = 0.3
    shared_folders.Path = lambda path: Path("/nowhere/else")


def sees_late() -> None:
    """This rank sees a new file when it looks for the hundredth time."""
    shared_folders._WAIT_S = 600.0
    read, looks = Path.read_text, itertools.count(1)

    def late(path: Path, *args: Any, **kwargs: Any) -> str:
        if path.name == "new" and next(looks) < 100:
            raise FileNotFoundError(path)
        return read(path, *args, **kwargs)

    shared_folders.Path.read_text = late


def sees_half() -> None:
    """This rank sees half of a new file."""
    read = Path.read_text
    shared_folders.Path.read_text = lambda path, *args, **kwargs: read(path, *args, **kwargs)[:100]


def may_not_write() -> None:
    """This rank may not write to the folder that it is to show."""

    def refused(path: Path) -> Any:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    shared_folders.trial_folder = refused


def has_locks_of_its_own() -> None:
    """Locks of other nodes are not in force for this rank."""
    shared_folders.fcntl.flock = lambda handle, flags: None


def measured(port: int, faults: dict[int, Fault], out: Path, *, limit_s: float = 600.0) -> list[Any]:
    """What two ranks measured, or the error that each met."""
    return _together(_measure, port, faults, out, world_size=2, limit_s=limit_s)


def looked(port: int, folder: Path, faults: dict[int, Fault], out: Path) -> list[Any]:
    """What rank 0 finds, showing files to a second rank on another host, as status, check and text of each finding."""
    return _together(_look, port, faults, out, world_size=2, folder=folder)[0]


def _together(work: Callable[..., Any], port: int, faults: dict[int, Fault], out: Path, **more: Any) -> list[Any]:
    world_size = more["world_size"]
    processes = [
        forking().Process(target=_rank, args=(work, rank, port, faults.get(rank), out / str(rank), more))
        for rank in range(world_size)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(600)
        process.kill()
    return [json.loads((out / str(rank)).read_text()) for rank in range(world_size)]


def _rank(work: Callable[..., Any], rank: int, port: int, fault: Fault | None, out: Path, more: dict[str, Any]) -> None:
    if fault is not None:
        fault()
    ranks = Ranks(rank=rank, world_size=more.pop("world_size"), local_rank=rank)
    meeting = Meeting(Place(ranks=ranks, host=f"node{rank + 1}", port=port), limit_s=600)
    try:
        found = work(meeting, ranks, **more)
    except RuntimeError as error:
        found = {"error": str(error)}
    out.write_text(json.dumps(found))
    # Rank 0 serves the store: it leaves last.
    if ranks.is_first:
        for other in range(1, ranks.world_size):
            meeting.hear(f"done/{other}", limit_s=600)
    else:
        meeting.tell(f"done/{rank}")


def _measure(meeting: Meeting, ranks: Ranks, *, limit_s: float) -> dict[str, Any]:
    found = communication.measure(meeting.store, ranks, torch.device("cpu"), limit_s=limit_s)
    return communication.as_data(found)


def _look(meeting: Meeting, ranks: Ranks, *, folder: Path) -> list[Any]:
    if ranks.is_first:
        shared_folders._SLOW_S = 600.0  # the other rank may have to wait for a processor
        found = shared_folders.show_file(meeting, "runs", folder, {1: "node2"}, limit_s=600)
        return [[one.status, one.check, one.found] for one in found]
    shared_folders.look_for_file(meeting, "runs", ranks.rank, limit_s=600)
    return []
