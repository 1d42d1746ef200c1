"""A file's whole text, whatever its encoding, compressed or not, and the damage that bytes are known for."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bertline.foundation.errors import DataError
from bertline.tasks.option_names import OptionNames

_GZIP_MAGIC = b"\x1f\x8b"
_OPTIONS = OptionNames(encoding="source.encoding")


def decoded_text(path: Path, encoding: str) -> str:
    """The text without a byte order mark; gzip is told by its first bytes.

    Raises:
        DataError: No such file, no such encoding, a line that is not text in it, UTF-8's mark in a file that is said
            to be in another encoding, or a torn gzip file.
    """
    if not path.is_file():
        raise DataError(f"{path} is not a file. Put the data there, or a link to it, or change the task's source.")
    content = path.read_bytes()
    if content.startswith(_GZIP_MAGIC):
        with gzip_damage_named(path):
            content = gzip.decompress(content)
    check_encoding(path, encoding, content[: len(codecs.BOM_UTF8)], _OPTIONS)
    try:
        return content.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise undecodable(path, content, encoding, _OPTIONS) from error


@contextmanager
def gzip_damage_named(path: Path) -> Iterator[None]:
    """Inside, a gzip file that is torn, corrupt or none is an error for people.

    Raises:
        DataError: It is.
    """
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is not a whole gzip file ({error}). Copy it again.") from error


def check_encoding(path: Path, encoding: str, beginning: bytes, options: OptionNames) -> None:
    """Whether there is such an encoding, and the file's first three bytes do not speak against it.

    Raises:
        DataError: There is none, or they do.
    """
    key = options.encoding or "the encoding"
    try:
        name = codecs.lookup(encoding).name
    except LookupError as error:
        raise DataError(f"{key} is {encoding!r}, which Python does not know (utf-8, latin-1, ...).") from error
    # One byte a character: such an encoding reads UTF-8's mark as three letters, and all the rest as wrongly.
    if not name.startswith("utf") and beginning == codecs.BOM_UTF8:
        raise DataError(f"{path} starts with the mark of UTF-8, but {key} is {encoding!r}. Set it to utf-8.")


def undecodable(path: Path, content: bytes, encoding: str, options: OptionNames) -> DataError:
    """The error for a file whose bytes, decompressed, are not text in the encoding."""
    line = 1
    try:
        content.decode(encoding)
    except UnicodeDecodeError as error:
        line += content[: error.start].count(b"\n")
    key = options.encoding
    way_out = f"Set {key} (latin-1, cp1252, utf-16, ...) or mend" if key else "Save the file in that encoding, or mend"
    return DataError(f"{path}:{line} is not text in {encoding}. {way_out} the file.")
