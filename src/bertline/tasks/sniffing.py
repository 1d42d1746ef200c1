"""Detection of a table's format from its content, for names without a known ending."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bertline.foundation.delimited import MAX_FIELD_CHARACTERS
from bertline.tasks.decoded_files import gzip_damage_named
from bertline.tasks.tags import TAG

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
