"""Speed of a folder: written and read in one piece, and in random pages."""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass
from pathlib import Path

PAGE_BYTES = 4096
_FIRST_BYTES, _MOST_BYTES = 1 << 20, 64 << 20
_WRITE_S, _READ_S = 1.5, 0.7


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """Measured speed of a folder."""

    written_bytes_per_s: float
    read_bytes_per_s: float
    """In one piece. From the page cache, where the file system does not let go of it."""
    pages_per_s: float
    """Random reads of 4 KiB per second, by one thread."""


def measure(folder: Path) -> Speed:
    """Write a file in one piece, with each part on disk before the next, read it, then read random pages of it.

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
    read, pages = measure_reading(path)
    return Speed(written_bytes_per_s=written / write_s, read_bytes_per_s=read, pages_per_s=pages)


def measure_reading(path: Path) -> tuple[float, float]:
    """Return the bytes per second of reading a file from its start, and the random pages per second.

    Args:
        path: A file of at least one page.
    """
    with path.open("rb", buffering=0) as handle:
        _forget(handle.fileno())
        started, read = time.monotonic(), 0
        while read < _MOST_BYTES and time.monotonic() - started < _READ_S and (found := handle.read(_FIRST_BYTES)):
            read += len(found)
        read_s = time.monotonic() - started
        _forget(handle.fileno())
        places, pages, most = random.Random(1), 0, max(1, path.stat().st_size // PAGE_BYTES)
        started = time.monotonic()
        while time.monotonic() - started < _READ_S:
            os.pread(handle.fileno(), PAGE_BYTES, places.randrange(most) * PAGE_BYTES)
            pages += 1
        return read / read_s, pages / (time.monotonic() - started)


def _forget(descriptor: int) -> None:
    """Drop the file from the page cache, where the system can."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def rate(bytes_per_s: float) -> str:
    """Return a rate as text."""
    return f"{bytes_per_s / 1e6:,.0f} MB/s" if bytes_per_s >= 1e6 else f"{bytes_per_s / 1e6:.2f} MB/s"
