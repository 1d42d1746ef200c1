"""Decoding of whole files, plain or gzip; errors for damaged files name the configuration keys of the caller."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bertline.foundation.errors import DataError

GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, kw_only=True, slots=True)
class OptionNames:
    """Configuration keys of a reader's caller; None for what the caller does not let the user choose."""

    format: str | None = None
    encoding: str | None = None
    quoting: str | None = None
    extra_fields: str | None = None


NO_OPTIONS = OptionNames()
ENCODING_OPTION = OptionNames(encoding="source.encoding")


def decoded_text(path: Path, encoding: str, options: OptionNames = ENCODING_OPTION) -> str:
    """Return the text without a byte order mark. Gzip is detected by its first bytes; `options` is for the messages.

    Raises:
        DataError: The file does not exist, the encoding is unknown, a line cannot be decoded, a file with a UTF-8 byte
            order mark is configured with another encoding, or a gzip file is truncated or corrupt.
    """
    if not path.is_file():
        raise DataError(f"{path} is not a file. Put the data there, or a link to it, or change the task's source.")
    content = path.read_bytes()
    if content.startswith(GZIP_MAGIC):
        with gzip_damage_named(path):
            content = gzip.decompress(content)
    check_encoding(path, encoding, content[: len(codecs.BOM_UTF8)], options)
    try:
        return content.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise undecodable(path, content, encoding, options) from error


@contextmanager
def gzip_damage_named(path: Path) -> Iterator[None]:
    """Turn errors of the gzip reader into a message that names the file.

    Raises:
        DataError: The file is truncated, corrupt or not gzip.
    """
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is not a whole gzip file ({error}). Copy it again.") from error


def check_encoding(path: Path, encoding: str, beginning: bytes, options: OptionNames) -> None:
    """Check that the encoding exists and that the first three bytes of the file do not contradict it.

    Raises:
        DataError: The encoding is unknown, or the file has a UTF-8 byte order mark and the encoding is not Unicode.
    """
    key = options.encoding or "the encoding"
    try:
        name = codecs.lookup(encoding).name
    except LookupError as error:
        raise DataError(f"{key} is {encoding!r}, which Python does not know (utf-8, latin-1, ...).") from error
    # A single-byte encoding decodes the UTF-8 mark as three letters, and the rest of the file equally wrongly.
    if not name.startswith("utf") and beginning == codecs.BOM_UTF8:
        raise DataError(f"{path} starts with the mark of UTF-8, but {key} is {encoding!r}. Set it to utf-8.")


def undecodable(path: Path, content: bytes, encoding: str, options: OptionNames) -> DataError:
    """Return the error for a file whose decompressed bytes cannot be decoded."""
    line = 1
    try:
        content.decode(encoding)
    except UnicodeDecodeError as error:
        line += content[: error.start].count(b"\n")
    key = options.encoding
    way_out = f"Set {key} (latin-1, cp1252, utf-16, ...) or fix" if key else "Save the file in that encoding, or fix"
    return DataError(f"{path}:{line} is not text in {encoding}. {way_out} the file.")
