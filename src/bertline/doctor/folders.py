"""Checks of one folder on one host: space, lock, atomic rename, speed."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bertline.doctor.finding import Finding, green, note, red, unused

_PAGE_BYTES = 4096
_FIRST_BYTES, _MOST_BYTES = 1 << 20, 64 << 20
_WRITE_S, _READ_S = 1.5, 0.7
_REPLACE_S, _MOST_REPLACEMENTS = 0.5, 200
_CONTENT = 64 * 1024
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
    may_be_read_only: bool = False
    setting: str = ""
    """What moves the folder elsewhere, for messages."""


def existing(path: Path) -> Path:
    """Return the folder, or the nearest folder above it that exists."""
    path = path.absolute()
    while not path.is_dir():
        path = path.parent
    return path


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


def _unwritable(folder: Folder, error: OSError) -> Finding:
    reason = error.strerror or str(error)
    if folder.may_be_read_only and isinstance(error, PermissionError | OSError) and not _is_full(error):
        return unused(f"{folder.title}: write", f"not needed: it is only read ({reason})")
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """Measured speed of a folder."""

    written_bytes_per_s: float
    read_bytes_per_s: float
    """In one piece. From the page cache, where the file system does not let go of it."""
    pages_per_s: float
    """Random reads of 4 KiB per second, by one thread."""


def measure(folder: Path) -> Speed:
    """Write a file in one piece, with each megabyte on disk before the next, read it, then read random pages of it.

    The file is as large as can be written in 1.5 s, at most 64 MiB; all takes about 3 s, however slow the disk is.
    """
    path = folder / "speed"
    block = random.Random(0).randbytes(_FIRST_BYTES)  # not compressible
    with path.open("wb", buffering=0) as handle:
        started, written = time.monotonic(), 0
        while written < _MOST_BYTES and (took_s := time.monotonic() - started) < _WRITE_S:
            # As many blocks as a tenth of a second takes: a sync for each would measure only latency.
            for _ in range(max(1, int(written / _FIRST_BYTES / took_s / 10)) if written else 1):
                written += handle.write(block)
            os.fsync(handle.fileno())
        write_s = time.monotonic() - started
    with path.open("rb", buffering=0) as handle:
        size = written
        _forget(handle.fileno())
        started, read = time.monotonic(), 0
        while time.monotonic() - started < _READ_S and (found := handle.read(_FIRST_BYTES)):
            read += len(found)
        read_s = time.monotonic() - started
        _forget(handle.fileno())
        places, pages = random.Random(1), 0
        started = time.monotonic()
        while time.monotonic() - started < _READ_S:
            os.pread(handle.fileno(), _PAGE_BYTES, places.randrange(size // _PAGE_BYTES) * _PAGE_BYTES)
            pages += 1
        pages_s = time.monotonic() - started
    return Speed(
        written_bytes_per_s=written / write_s, read_bytes_per_s=read / read_s, pages_per_s=pages / pages_s
    )  # fmt: skip


def _forget(descriptor: int) -> None:
    """Drop the file from the page cache, where the system can."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def speed_finding(folder: Folder, speed: Speed) -> Finding:
    """Judge the speed of a folder by what a run does with it."""
    check = f"{folder.title}: speed"
    pages_mb = speed.pages_per_s * _PAGE_BYTES / 1e6
    found = (
        f"writes {_rate(speed.written_bytes_per_s)}, reads {_rate(speed.read_bytes_per_s)}, random 4 KiB pages "
        f"{pages_mb:,.1f} MB/s ({speed.pages_per_s:,.0f} a second)"
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


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:,.0f} MB/s" if bytes_per_s >= 1e6 else f"{bytes_per_s / 1e6:.2f} MB/s"


def _size(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:,.1f} GB" if num_bytes >= 1e8 else f"{num_bytes / 1e6:,.1f} MB"
