"""Text files of users, plain or gzip, with errors that name file and line."""

import codecs
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from bertline.foundation.errors import DataError

_GZIP_MAGIC = b"\x1f\x8b"


@contextmanager
def opened_text(path: Path, encoding: str, *, newline: str = "\n") -> Iterator[IO[str]]:
    """Open a text file, plain or gzip (by its name or its first bytes), for errors that name the file.

    Args:
        path: The file.
        encoding: Character encoding.
        newline: As for `open`; by default only line feeds end a line, as texts may contain rarer separators.

    Raises:
        DataError: The file does not exist, the encoding is unknown, a line cannot be decoded, or a gzip file is
            truncated or corrupt.
    """
    if not path.is_file():
        raise DataError(f"{path} is not a file. Put the data there, or a link to it, or change the path.")
    try:
        codecs.lookup(encoding)
    except LookupError as error:
        raise DataError(f"encoding is {encoding!r}, which Python does not know (utf-8, latin-1, ...).") from error
    with path.open("rb") as binary:
        is_gzip = path.suffix == ".gz" or binary.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    open_file: Any = gzip.open if is_gzip else open
    try:
        with open_file(path, "rt", encoding=encoding, newline=newline) as handle:
            yield handle
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is not a whole gzip file ({error}). Copy it again.") from error
    except UnicodeError as error:
        # The file is decoded in blocks, so it is read again to find the line.
        line = 1
        with open_file(path, "rb") as handle:
            content = handle.read()
        try:
            content.decode(encoding)
        except UnicodeDecodeError as where:
            line += content[: where.start].count(b"\n")
        raise DataError(
            f"{path}:{line} is not text in {encoding}. Set encoding (latin-1, cp1252, utf-16, ...) or fix the file."
        ) from error


def decoded_text(path: Path, encoding: str) -> str:
    """Return the text of a whole file without a byte order mark; see `opened_text`."""
    with opened_text(path, encoding) as handle:
        return handle.read().removeprefix("\ufeff")


def numbered_lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Yield line numbers, from 1, and lines of a file without line ends and byte order mark; see `opened_text`."""
    with opened_text(path, encoding) as handle:
        for number, line in enumerate(handle, start=1):
            yield number, (line.removeprefix("\ufeff") if number == 1 else line).rstrip("\r\n")
