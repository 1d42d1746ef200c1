"""Compressed input: recognised by its first bytes, read as a stream, with one group of exceptions for torn data."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from pathlib import Path
from typing import IO, cast

from backports import zstd

COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
TORN = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstd.ZstdError)
"""What damaged data raises. bz2 raises OSError without an error number: see `is_torn`."""

_TAR_MARK = (257, b"ustar")
_MARKS = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstandard"}


def compression_of(path: Path) -> str | None:
    """Return the name of a file's compression, by its first bytes; None if it is not compressed."""
    with path.open("rb") as handle:
        head = handle.read(max(map(len, _MARKS)))
    return next((name for mark, name in _MARKS.items() if head.startswith(mark)), None)


def open_decompressed(path: Path) -> IO[bytes]:
    """Open the content of a plain or compressed file as a stream of bytes, in bounded memory."""
    match compression_of(path):
        case "gzip":
            return cast("IO[bytes]", gzip.open(path))
        case "bzip2":
            return bz2.open(path)
        case "xz":
            return lzma.open(path)
        case "zstandard":
            return cast("IO[bytes]", zstd.open(path))
        case _:
            return path.open("rb")


def is_torn(error: BaseException) -> bool:
    """Return whether an exception was raised by damaged compressed data, not by the disk."""
    return isinstance(error, TORN) or (isinstance(error, OSError) and error.errno is None)


def without_compression(name: str) -> str:
    """Return a file name in lower case, without the ending of a compression.

    Example:
        >>> without_compression("Rows.TSV.zst")
        'rows.tsv'
    """
    name = name.lower()
    return next((name.removesuffix(ending) for ending in COMPRESSED_SUFFIXES if name.endswith(ending)), name)


def archive_kind(path: Path) -> str | None:
    """Return `tar` or `zip` for an archive of files, plain or compressed, whose members would be read as one text."""
    with open_decompressed(path) as handle:
        start = handle.read(512)
    if start.startswith(b"PK\x03\x04"):
        return "zip"
    place, mark = _TAR_MARK
    return "tar" if start[place:].startswith(mark) else None


def text_stream(path: Path, encoding: str, errors: str) -> io.TextIOWrapper:
    """Open the content of a plain or compressed file as text."""
    if compression_of(path) is None:
        return path.open(encoding=encoding, errors=errors)
    return io.TextIOWrapper(open_decompressed(path), encoding=encoding, errors=errors)
