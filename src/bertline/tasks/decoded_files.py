"""Whole files, plain or gzip: decoded with errors that name the caller's keys, and their format if no name tells it."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bertline.foundation.delimited import MAX_FIELD_CHARACTERS
from bertline.foundation.errors import DataError
from bertline.tasks.tags import TAG

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


# Detection of a table's format from its content, for names without a known ending.

Guess = Literal["csv", "tsv", "jsonl", "parquet", "conll"]
_MOST_ROWS = 50
_MOST_WORDS = 200
_MOST_BYTES = 1 << 20
_PARQUET_MARK = b"PAR1"


@dataclass(frozen=True, slots=True)
class Beginning:
    """The beginning of a file, as read for detection."""

    text: str
    """Decoded text without a byte order mark; undecodable bytes are replaced."""
    is_whole: bool
    """Whether this is the whole file. If not, the text may end within a row."""
    is_parquet: bool

    @property
    def lines(self) -> list[str]:
        r"""Complete lines without line ends (`\n`, `\r\n` or `\r` only: fields may contain rarer separators)."""
        lines = [line.rstrip("\r\n") for line in io.StringIO(self.text, newline="")]
        return lines if self.is_whole else lines[:-1]


def beginning_of(path: Path, encoding: str) -> Beginning:
    """Read the first megabyte of a file, plain or `.gz`.

    Raises:
        DataError: A gzip file is truncated or corrupt.
    """
    with gzip_damage_named(path), gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as handle:
        content = handle.read(_MOST_BYTES)
        is_whole = not handle.read(1)
    text = content.decode(encoding, errors="replace").removeprefix("\ufeff")
    return Beginning(text, is_whole, content.startswith(_PARQUET_MARK))


def guesses(start: Beginning) -> list[Guess]:
    """Return the possible formats of a file with this beginning; a single one if detection is unambiguous.

    Parquet is detected by its magic bytes, JSONL by an object in the first line, and CoNLL by blank lines between
    blocks, or `-DOCSTART-`, with a tag at the end of each line. In TSV and CSV all rows have the same number of fields,
    at least two.
    """
    if start.is_parquet:
        return ["parquet"]
    lines = start.lines
    filled = [line for line in lines if line.strip()]
    # Only the first line counts: the reader reports a later line without an object as an invalid row.
    if filled and _is_object(filled[0]):
        return ["jsonl"]
    if _is_conll(lines):
        return ["conll"]
    separators: tuple[tuple[Guess, str], ...] = (("tsv", "\t"), ("csv", ","))
    return [name for name, separator in separators if _is_table(start, filled[:_MOST_ROWS], separator)]


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _is_table(start: Beginning, lines: list[str], separator: str) -> bool:
    """Return whether all rows have the same number of fields, at least two, read with or without quoting."""
    unquoted = {line.count(separator) + 1 for line in lines}
    return any(len(widths) == 1 and widths != {1} for widths in (_quoted_widths(start, separator), unquoted))


def _quoted_widths(start: Beginning, separator: str) -> set[int]:
    """Return the numbers of fields of the first rows, read with quoting: a row may span several lines."""
    csv.field_size_limit(MAX_FIELD_CHARACTERS)  # a process-wide setting
    rows = csv.reader(io.StringIO(start.text, newline=""), delimiter=separator)
    try:
        first = list(itertools.islice(rows, _MOST_ROWS + 1))
    except csv.Error:
        return set()
    complete = first if start.is_whole else first[:-1]
    return {len(fields) for fields in complete if any(field.strip() for field in fields)}


def _is_conll(lines: list[str]) -> bool:
    """Return whether lines are blocks with one word per line and a tag in the last column."""
    words = [line.split() for line in lines if line.strip() and not line.startswith(("-DOCSTART-", "#"))]
    blocks = any(line.startswith("-DOCSTART-") or not line.strip() for line in lines)
    tagged = (len(each) > 1 and TAG.fullmatch(each[-1]) for each in words[:_MOST_WORDS])
    return blocks and len(words) > 1 and all(tagged)
