"""Who works in a run folder: a lock of the file system, and a file with a heartbeat where that lock does not reach.

`flock` is released when its process ends, and says at once whether somebody works. But it is unknown to some mounts of
Lustre, and known to one machine only on others (BeeGFS). So the owner also writes `owner.json`, and renews it every
`BEAT_S` seconds. An owner of another machine whose file is older than `GRACE_S` is gone. Ages are differences of times
that the file server wrote, so the clocks of the machines do not matter.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from bertline.foundation.files import lock_file
from bertline.foundation.liveness import has_ended, machine, pid_namespace
from bertline.foundation.progress import warn

BEAT_S = 5.0
"""Seconds between two heartbeats."""
GRACE_S = 60.0
"""Seconds without a heartbeat after which an owner of another machine is gone. A file system of a network may show
other machines a file's change only after half a minute."""
ALREADY_RUNNING = 75  # EX_TEMPFAIL of sysexits.h
"""Exit status of a process that works in no run folder, or no longer, because another process works there."""
_LOCK, _OWNER = "lock", "owner.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """The process that works in a run folder."""

    token: str
    """Random; tells two owners apart."""
    host: str
    machine: str
    """Identifies the machine and its start: a lock of this machine can be trusted for owners of the same one."""
    pid: int
    pids: str
    """Namespace in which the number of the process is meant; a container has its own."""
    job: str | None
    """Job of Slurm, for people who look for the owner."""
    locks: bool
    """Whether the owner holds the lock of the file system too."""


@contextmanager
def hold_lock(folder: Path) -> Iterator[bool]:
    """Take the ownership of a run folder without waiting; yield whether it was free. It ends with the process."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("w") as handle:
        locked = lock_file(handle)
        if locked is False or _is_owned_elsewhere(folder, lock_is_free=locked is True):
            yield False
            return
        owner = _this_process(locks=locked is True)
        if not _take(folder, owner, lock_is_free=locked is True):
            yield False
            return
        stop = threading.Event()
        beats = threading.Thread(target=_beat, args=(folder, owner, stop), name="owner", daemon=True)
        beats.start()
        try:
            yield True
        finally:
            stop.set()
            beats.join()
            if _read(folder) == owner:
                with suppress(OSError):
                    (folder / _OWNER).unlink()


def is_locked(folder: Path) -> bool:
    """Return whether a process works in this run folder, on this machine or another one."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("a+") as handle:
        locked = lock_file(handle, shared=True)
        return locked is False or _is_owned_elsewhere(folder, lock_is_free=locked is True)


def age_s(path: Path) -> float | None:
    """Return the seconds since a file was written, by the clock of its file server; None if it is missing.

    A file that cannot be written next to it (a full disk) is replaced by the clock of this machine.
    """
    try:
        with path.open("rb") as handle:  # opened, so that a network file system asks its server
            written = os.fstat(handle.fileno()).st_mtime
    except OSError:
        return None
    return time_in(path.parent) - written


def time_in(folder: Path) -> float:
    """Return the seconds of the epoch by the clock of a folder's file server.

    Where no file can be written (a full disk), it is the clock of this machine.
    """
    probe = folder / f".now.{secrets.token_hex(4)}"
    try:
        with probe.open("xb") as handle:
            return os.fstat(handle.fileno()).st_mtime
    except OSError:
        return time.time()
    finally:
        with suppress(OSError):
            probe.unlink()


def _is_owned_elsewhere(folder: Path, *, lock_is_free: bool) -> bool:
    """Return whether an owner that this machine's lock says nothing about has a heartbeat."""
    owner = _read(folder)
    if owner is None:
        return False
    here = _this_process(locks=False)
    if owner.machine == here.machine and ((owner.locks and lock_is_free) or _has_ended(owner, here)):
        return False  # it was killed
    age = age_s(folder / _OWNER)
    return age is not None and age < GRACE_S


def _has_ended(owner: Owner, here: Owner) -> bool:
    """Return whether the process of an owner on this machine is gone."""
    return owner.pids == here.pids and has_ended(owner.pid)


def _take(folder: Path, owner: Owner, *, lock_is_free: bool) -> bool:
    """Write the owner's file in place of one that is gone; False if another process was faster."""
    path, turn = folder / _OWNER, folder / f".{_OWNER}.turn"
    temporary = path.with_name(f".{_OWNER}.{owner.token}")
    try:
        temporary.write_text(json.dumps(asdict(owner)), encoding="utf-8")
        os.link(temporary, turn)  # one after the other: fails if there is one
    except FileExistsError:
        _drop_stale(turn, aside=temporary.with_suffix(".stale"))  # the next attempt succeeds
        return False
    except OSError:
        if not owner.locks:
            raise
        # A full disk: the lock of the file system is held, and the work reports the disk in its own words.
        return True
    else:
        try:
            if _is_owned_elsewhere(folder, lock_is_free=lock_is_free):
                return False  # since it was looked at
            temporary.replace(path)
        finally:
            turn.unlink(missing_ok=True)
        return True
    finally:
        with suppress(OSError):
            temporary.unlink()


def _drop_stale(turn: Path, *, aside: Path) -> None:
    """Remove the turn of a process that was killed in it."""
    try:
        held = turn.read_bytes()
        age = age_s(turn)
        if age is None or age < GRACE_S:
            return
        turn.rename(aside)
        if aside.read_bytes() != held:  # another process was faster, and this is the turn of a third one
            os.link(aside, turn)
    except OSError:
        pass
    finally:
        aside.unlink(missing_ok=True)


def _beat(folder: Path, owner: Owner, stop: threading.Event) -> None:
    """Renew the owner's file until the end of the work; end this process if it lost the ownership."""
    path, beat_at = folder / _OWNER, time.time()  # which counts the time of a machine that sleeps, too
    while not stop.wait(BEAT_S):
        found = _read(folder)
        if found is not None and found.token != owner.token:
            return _end(f"{found.host} works in {folder}, because this process was silent for too long; this one ends")
        silent_s = time.time() - beat_at
        if found is None and silent_s > GRACE_S and _is_missing(path):
            return _end(
                f"{path} was removed while this process was silent for {silent_s:.0f} s: another one may have worked "
                f"in {folder} meanwhile; this one ends"
            )
        with suppress(OSError):
            if found is None:
                path.write_text(json.dumps(asdict(owner)), encoding="utf-8")
            else:
                os.utime(path)
            beat_at = time.time()
    return None


def _end(why: str) -> None:
    """End this process where it is: a last checkpoint or status would replace what the present owner has written."""
    warn(why)
    os._exit(ALREADY_RUNNING)


def _is_missing(path: Path) -> bool:
    """Return whether a file is certainly not there; a file system that does not answer says nothing."""
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except OSError:
        pass
    return False


def _this_process(*, locks: bool) -> Owner:
    return Owner(
        token=secrets.token_hex(8),
        host=socket.gethostname(),
        machine=machine(),
        pid=os.getpid(),
        pids=pid_namespace(),
        job=os.environ.get("SLURM_JOB_ID"),
        locks=locks,
    )


def _read(folder: Path) -> Owner | None:
    try:
        return Owner(**json.loads((folder / _OWNER).read_text(encoding="utf-8", errors="replace")))
    except (OSError, ValueError, TypeError):
        return None  # missing, or torn by a full disk: then nobody renews it
