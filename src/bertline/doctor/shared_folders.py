"""Checks of one folder between hosts: how soon another node sees a new file, and whether it sees its lock."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bertline.doctor.finding import Finding, green, note, red
from bertline.doctor.folders import trial_folder
from bertline.doctor.meeting import Meeting

_WAIT_S = 12.0
_SLOW_S = 2.0
_CONTENT = "whole\n" * 1000
_POLL_S = 0.005


def show_file(meeting: Meeting, title: str, path: Path, others: Mapping[int, str], *, limit_s: float) -> list[Finding]:
    """On rank 0: make a folder, a file in it by an atomic rename, and hold a lock; judge what the other hosts saw.

    Args:
        meeting: The store of the ranks.
        title: Title of the folder.
        path: The folder, on all hosts.
        others: Host names of the first ranks of the other hosts, by rank; each calls `look_for_file`.
        limit_s: Seconds for all of it.
    """
    until = time.monotonic() + limit_s
    try:
        with trial_folder(path) as folder, (folder / "lock").open("a") as lock:
            locks = _locked(lock)
            meeting.tell(f"{title}/folder", str(folder))
            for rank in others:
                _heard(meeting, f"{title}/ready/{rank}", until)
            (folder / "partial").write_text(_CONTENT)
            os.replace(folder / "partial", folder / "new")  # noqa: PTH105
            meeting.tell(f"{title}/written")
            seen = {rank: _heard(meeting, f"{title}/seen/{rank}", until) for rank in others}
    except OSError as error:
        meeting.tell(f"{title}/folder", None)
        return [
            red(f"{title}: other nodes", f"cannot be checked: {error.strerror or error}", "Make it writable first.")
        ]
    return list(_judged(title, path, {others[rank]: found for rank, found in seen.items()}, locks=locks))


def look_for_file(meeting: Meeting, title: str, rank: int, *, limit_s: float) -> None:
    """On the first rank of another host: look for what rank 0 shows, and tell it how long that took."""
    until = time.monotonic() + limit_s
    folder = _heard(meeting, f"{title}/folder", until)
    if folder is None:
        return
    path = Path(folder)
    path.joinpath("new").exists()  # a network file system may remember that it was missing
    meeting.tell(f"{title}/ready/{rank}")
    if _heard(meeting, f"{title}/written", until, default="late") == "late":
        return
    started = time.monotonic()
    content = None
    while content is None and time.monotonic() - started < _WAIT_S:
        try:
            content = path.joinpath("new").read_text()
        except OSError:
            time.sleep(_POLL_S)
    waited_s = time.monotonic() - started
    if content is None:
        meeting.tell(f"{title}/seen/{rank}", {"waited_s": None})
        return
    meeting.tell(
        f"{title}/seen/{rank}",
        {"waited_s": waited_s, "whole": content == _CONTENT, "lock": _lock_seen(path / "lock")},
    )


def _locked(handle: Any) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False  # the folder's own check says so
    return True


def _lock_seen(path: Path) -> bool:
    """Return whether another host's lock of a file is in force here."""
    try:
        with path.open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _heard(meeting: Meeting, key: str, until: float, default: Any = None) -> Any:
    try:
        return meeting.hear(key, limit_s=until - time.monotonic())
    except TimeoutError:
        return default


def _judged(title: str, path: Path, seen: Mapping[str, Any], *, locks: bool) -> Iterator[Finding]:
    check = f"{title}: other nodes"
    blind = sorted(host for host, found in seen.items() if found is None or found["waited_s"] is None)
    if blind:
        # All nodes of a run read and write runs/; the other folders are used where `dvc repro` is started.
        bad = red if title == "runs" else note
        yield bad(
            check,
            f"{', '.join(blind)} sees no new file of {path} within {_WAIT_S:.0f} s",
            "Put this folder on a file system that all nodes share; on NFS, mount it with actimeo=1 (or "
            "lookupcache=positive), so that new files are seen soon.",
        )
        return
    torn = sorted(host for host, found in seen.items() if not found["whole"])
    if torn:
        yield red(
            check,
            f"{', '.join(torn)} reads half of a file that was renamed into place",
            "Use a file system on which a rename is atomic for all nodes: checkpoints and records rely on it.",
        )
    waited_s = max(found["waited_s"] for found in seen.values())
    found = f"a new file is seen after {waited_s:.2f} s at most, by {len(seen)} other node(s)"
    if waited_s > _SLOW_S:
        yield note(check, found, "Mount it with actimeo=1: nodes learn late that a run ended.", seen_s=waited_s)
    elif not torn:
        yield green(check, found, seen_s=waited_s)
    unlocked = sorted(host for host, found in seen.items() if not found["lock"])
    if locks and unlocked:
        yield note(
            f"{title}: lock of other nodes",
            f"a lock of this node is not in force on {', '.join(unlocked)}",
            "Start a run from one node only, or mount the folder with locks across nodes (Lustre: -o flock, not "
            "localflock; BeeGFS: tuneUseGlobalFileLocks).",
        )
    elif locks:
        yield green(f"{title}: lock of other nodes", "a lock is in force on all nodes")
