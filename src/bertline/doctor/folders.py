"""Checks of one folder on one host: space, lock, atomic rename, speed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bertline.doctor.finding import Finding, green, note, red, unused
from bertline.doctor.speed import PAGE_BYTES, Speed, measure, measure_reading, rate
from bertline.orchestration.changed import files_now_in

_REPLACE_S, _MOST_REPLACEMENTS = 0.5, 200
_CONTENT = 64 * 1024
_MOST_LISTED = 200
_MOST_LINKS = 2
# Below these a run waits for its folder for most of the time.
_SLOW_CHECKPOINT_S = 60.0
_SLOW_PAGES_PER_S = 500.0
_WRONG_CLOCK_S = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Folder:
    """A folder to check."""

    title: str
    """Name in the table: `runs`, `cache`, `data`."""
    path: Path
    needed_bytes: int
    """What a run writes there, at most."""
    checkpoint_bytes: int = 0
    """Size of the largest file that is written there while training waits; 0 if there is none."""
    is_input: bool = False
    """Whether runs only read it: it may be missing and read-only."""
    setting: str = ""
    """What moves the folder elsewhere, for messages."""


def existing(path: Path) -> Path:
    """Return the folder, or the nearest folder above it that exists."""
    path = path.absolute()
    while not path.is_dir():
        path = path.parent
    return path


def linked_folders(folder: Folder) -> list[Folder]:
    """Return the folders that links in an input folder lead to, such as `data/text`, as input folders."""
    if not folder.path.is_dir():
        return []
    links = sorted(path for path in folder.path.iterdir() if path.is_symlink() and path.is_dir())
    return [
        Folder(title=f"{folder.title}/{link.name}", path=link.resolve(), needed_bytes=0, is_input=True)
        for link in links[:_MOST_LINKS]
    ]


@contextmanager
def trial_folder(path: Path) -> Iterator[Path]:
    """Create a temporary folder in a folder, or in the nearest one above that exists.

    Raises:
        OSError: It cannot be created.
    """
    with tempfile.TemporaryDirectory(prefix=".doctor-", dir=existing(path), ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def folder_findings(folder: Folder, *, measured_as: str | None = None) -> Iterator[Finding]:
    """Check a folder.

    Args:
        folder: The folder.
        measured_as: Title of a folder on the same file system whose speed was measured; None measures it.
    """
    if folder.is_input and not folder.path.is_dir():
        yield unused(f"{folder.title}: folder", f"not used: there is no {folder.path}")
        return
    if not folder.is_input:
        yield _space(folder)
    try:
        with trial_folder(folder.path) as trial:
            yield _lock(folder, trial)
            yield _rename(folder, trial)
            yield from _clock(folder, trial)
            if measured_as is None:
                yield speed_finding(folder, measure(trial))
            else:
                yield green(f"{folder.title}: speed", f"the file system of {measured_as}, see there")
    except OSError as error:
        yield _unwritable(folder, error)
        if folder.is_input:
            yield from _reading(folder)


def _unwritable(folder: Folder, error: OSError) -> Finding:
    reason = error.strerror or str(error)
    if folder.is_input and not _is_full(error):
        return unused(f"{folder.title}: write", f"not needed: it is only read, and cannot be written ({reason})")
    return red(
        f"{folder.title}: write",
        f"{existing(folder.path)} cannot be written: {reason}",
        f"Free space or quota there, mount it writable, or give this user the right to write{_elsewhere(folder)}.",
    )


def _is_full(error: OSError) -> bool:
    return error.errno in (28, 122)  # ENOSPC, EDQUOT


def _space(folder: Folder) -> Finding:
    check, place = f"{folder.title}: space", existing(folder.path)
    free = shutil.disk_usage(place).free
    stat = os.statvfs(place)
    found = f"{_size(free)} free in {place}, at most {_size(folder.needed_bytes)} needed"
    if free < folder.needed_bytes:
        return red(check, found, f"Free space there{_elsewhere(folder)}.", free_bytes=free)
    if stat.f_files and stat.f_favail < 10_000:
        return red(check, f"{found}, but only {stat.f_favail:,} more files", "Delete files there.", free_bytes=free)
    return green(check, found, free_bytes=free)


def _lock(folder: Folder, trial: Path) -> Finding:
    """Lock a file twice, as two processes would; then with the locks that SQLite uses."""
    check = f"{folder.title}: lock"
    mount = (
        "Mount it with locks (Lustre: -o flock; NFS: version 4, or with lockd)"
        f"{_elsewhere(folder)}: they keep two commands from the same run."
    )
    with (trial / "lock").open("a") as one, (trial / "lock").open("a") as other:
        try:
            fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return red(check, f"flock is refused: {error.strerror or error}", mount)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            return red(check, "a file that is locked can be locked again: locks do nothing here", mount)
        fcntl.flock(one, fcntl.LOCK_UN)
        try:
            fcntl.lockf(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return red(check, f"POSIX locks, which SQLite needs, are refused: {error.strerror or error}", mount)
    return green(check, "works")


def _rename(folder: Folder, trial: Path) -> Finding:
    """Replace a file many times while a thread reads it: it must always see one content or the other, whole."""
    check = f"{folder.title}: rename"
    target, new = trial / "target", trial / "new"
    contents = {letter * _CONTENT for letter in "ab"}
    target.write_text("a" * _CONTENT)
    stop, problems = threading.Event(), list[str]()

    def read() -> None:
        while not stop.is_set() and not problems:
            try:
                if target.read_text() not in contents:
                    problems.append("half of a file")
            except OSError as error:
                problems.append(error.strerror or str(error))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    until, count = time.monotonic() + _REPLACE_S, 0
    while time.monotonic() < until and count < _MOST_REPLACEMENTS and not problems:
        new.write_text("ba"[count % 2] * _CONTENT)
        os.replace(new, target)  # noqa: PTH105  (Path.replace is the same call, but a test cannot stand in for it)
        count += 1
    stop.set()
    reader.join()
    if problems:
        return red(
            check,
            f"a file that is being replaced is read as: {problems[0]}",
            f"Use a file system with atomic rename{_elsewhere(folder)}: a kill could damage checkpoints here.",
        )
    return green(check, f"atomic ({count} replacements under a reader)", replacements=count)


def _clock(folder: Folder, trial: Path) -> Iterator[Finding]:
    """Compare the file system's clock, which may be a server's, with this machine's; silent where they agree."""
    before = time.time()
    (trial / "clock").write_text("now")
    offset = (trial / "clock").stat().st_mtime - before
    if abs(offset) > _WRONG_CLOCK_S:
        yield red(
            f"{folder.title}: clock",
            f"new files are dated {offset:+.1f} s from this machine's clock",
            "Synchronise the clocks of the file server and this machine (chrony, NTP): make and DVC compare dates.",
            offset_s=offset,
        )


def _reading(folder: Folder) -> Iterator[Finding]:
    """Measure a folder that cannot be written by the largest of the first files in it."""
    sizes: dict[Path, int] = {}
    for path in islice(files_now_in(folder.path), _MOST_LISTED):
        with suppress(FileNotFoundError):
            sizes[path] = path.stat().st_size
    largest = max(sizes, key=lambda path: sizes[path], default=None)
    if largest is not None and sizes[largest] >= PAGE_BYTES:
        read, pages = measure_reading(largest)
        yield green(
            f"{folder.title}: speed",
            f"reads {rate(read)}, random 4 KiB pages {rate(pages * PAGE_BYTES)} ({largest.name})",
            read_bytes_per_s=read,
            pages_per_s=pages,
        )


def speed_finding(folder: Folder, speed: Speed) -> Finding:
    """Judge the speed of a folder by what a run does with it."""
    check = f"{folder.title}: speed"
    pages_mb = speed.pages_per_s * PAGE_BYTES / 1e6
    found = (
        f"writes {rate(speed.written_bytes_per_s)}, reads {rate(speed.read_bytes_per_s)}, random 4 KiB pages "
        f"{pages_mb:,.1f} MB/s ({speed.pages_per_s:,.0f} per second)"
    )
    figures = {
        "written_bytes_per_s": speed.written_bytes_per_s,
        "read_bytes_per_s": speed.read_bytes_per_s,
        "pages_per_s": speed.pages_per_s,
    }
    save_s = folder.checkpoint_bytes / speed.written_bytes_per_s
    if save_s > _SLOW_CHECKPOINT_S:
        return red(
            check,
            f"{found}; a checkpoint takes {save_s:,.0f} s",
            f"Use a faster file system{_elsewhere(folder)}, or save more rarely (pretrain.checkpoint_every_steps).",
            **figures,
        )
    if speed.pages_per_s < _SLOW_PAGES_PER_S:
        return note(
            check,
            found,
            "Examples are read at random places: copy artifacts/examples to a local disk (a link may stay in its "
            "place), or let the page cache hold them.",
            **figures,
        )
    return green(check, found, **figures)


def _elsewhere(folder: Folder) -> str:
    return f", or choose another folder with {folder.setting}" if folder.setting else ""


def _size(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:,.1f} GB" if num_bytes >= 1e8 else f"{num_bytes / 1e6:,.1f} MB"
