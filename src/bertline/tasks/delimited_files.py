"""Reader of CSV, TSV and similar files: rows with their line numbers, and errors for typical damage."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, NamedTuple

from bertline.foundation.errors import DataError
from bertline.tasks.bad_rows import BadRow, BadRows
from bertline.tasks.decoded_files import OptionNames


@dataclass(frozen=True, slots=True)
class Delimiting:
    """How lines are split into fields."""

    separator: str
    """Separator of fields, one character."""
    header: bool
    quoting: bool
    max_fields: int | None
    """Maximum number of fields of a line; the last one keeps the rest. Only for files without quoting."""
    extra_fields: Literal["error", "ignore"]
    options: OptionNames
    """Names of the user's options, for messages."""


class Fields(NamedTuple):
    """The fields of one row."""

    line: int
    """First line of the row, from 1."""
    values: dict[str | int, str]
    """Fields by column name, or by column number from 0 if the file has no header."""


def read_fields(path: Path, handle: IO[str], delimiting: Delimiting, bad_rows: BadRows) -> Iterator[Fields]:
    """Yield the rows of an open file. Blank lines are skipped.

    Args:
        path: Path of the file, for messages.
        handle: File opened with `newline=""` if quoting is on, else with `newline="\\n"`.
        delimiting: How lines are split into fields.
        bad_rows: Collects rows with too many or too few fields.

    Raises:
        DataError: Quotes are unbalanced, or the header names a column twice. A quote that swallowed lines is an error
            even if invalid rows are skipped, because the number of lost rows is unknown.
    """
    lines = _quoted(path, handle, delimiting) if delimiting.quoting else _unquoted(handle, delimiting)
    names: list[str | int] | None = None
    width: int | None = None
    for line, num_lines, fields in lines:
        if line == 1:
            fields[0] = fields[0].removeprefix("\ufeff")
        if names is None and delimiting.header:
            names = [field.strip() for field in fields]
            _check_header(path, line, names)
            width = len(names)
            continue
        if width is None and delimiting.extra_fields == "error":
            width = len(fields)
        if width is not None and len(fields) != width:
            bad = _wrong_width(path, line, len(fields), width, delimiting)
            if bad is not None:
                # A wrong width over several lines comes from an unbalanced quote, which may have swallowed valid rows.
                if num_lines > 1:
                    raise DataError(str(bad))
                bad_rows.found(bad)
                continue
            fields = fields[:width]
        yield Fields(line, dict(zip(names or range(len(fields)), fields, strict=True)))


def _unquoted(handle: IO[str], delimiting: Delimiting) -> Iterator[tuple[int, int, list[str]]]:
    most_cuts = -1 if delimiting.max_fields is None else delimiting.max_fields - 1
    for line, content in enumerate(handle, start=1):
        content = content.rstrip("\r\n")
        if content and content != "\ufeff":
            yield line, 1, content.split(delimiting.separator, most_cuts)


def _quoted(path: Path, handle: IO[str], delimiting: Delimiting) -> Iterator[tuple[int, int, list[str]]]:
    csv.field_size_limit(1 << 30)
    remembered: list[str] = []

    def remembering() -> Iterator[str]:
        for line in handle:
            remembered.append(line)
            # csv sees the quote of the first field only if no byte order mark precedes it.
            yield line.removeprefix("\ufeff") if reader.line_num == 0 else line

    reader = csv.reader(remembering(), delimiter=delimiting.separator, strict=True)
    while True:
        line = reader.line_num + 1
        remembered.clear()
        try:
            fields = next(reader, None)
        except csv.Error as error:
            raise DataError(f"{path}:{line}: {error}. {_quotes_hint(delimiting.options)}") from error
        if fields is None:
            return
        if not fields:
            continue
        if len(remembered) > 1 and _swallowed_rows(remembered, len(fields), delimiting.separator):
            raise DataError(
                f"{path}:{line}: a quote opens here and closes {len(remembered) - 1} lines further down, and each of "
                f"these lines is a whole row by itself. {_quotes_hint(delimiting.options)} If such lines are really "
                "text, take their line ends out, or keep the rows as JSONL or Parquet where these can be read."
            )
        yield line, len(remembered), fields


def _swallowed_rows(lines: list[str], width: int, separator: str) -> bool:
    """Return whether each line of a record would be a row of the right width if quotes were plain text.

    Real multi-line text rarely has the same number of separators as a row in each of its lines. A separator before a
    space or a line end counts as punctuation.

    >>> _swallowed_rows(['"5 foot,x\\n', 'he is 6",y\\n'], 2, ",")
    True
    >>> _swallowed_rows(['"Dear Sir,\\n', 'thank you, all of you",y\\n'], 2, ",")
    False
    """

    def fields_of(line: str) -> int:
        line = line.rstrip("\r\n")
        if separator.isspace():
            return line.count(separator) + 1
        return sum(not rest[:1].isspace() and rest != "" for rest in line.split(separator)[1:]) + 1

    return width > 1 and all(fields_of(line) == width for line in lines)


def _wrong_width(path: Path, line: int, found: int, width: int, delimiting: Delimiting) -> BadRow | None:
    """Return the problem with the number of fields; None if extra fields are ignored."""
    if found > width and delimiting.extra_fields == "ignore":
        return None
    first = "the header" if delimiting.header else "the first row"
    hint = _quotes_hint(delimiting.options) if delimiting.quoting else "Fix the row."
    if found > width and delimiting.options.extra_fields is not None:
        hint += f" {delimiting.options.extra_fields}: ignore reads the first fields alone."
    return BadRow(
        "too_many_fields" if found > width else "too_few_fields",
        f"{path}:{line} has {found} fields, {first} has {width}. {hint}",
    )


def _quotes_hint(options: OptionNames) -> str:
    if options.quoting is None:
        return "A quote that begins a field has to end it, and one inside of such a field is written twice; fix it."
    return f"If the file has quotes that do not pair up, set {options.quoting} to false; else fix the row."


def _check_header(path: Path, line: int, names: list[str | int]) -> None:
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{path}:{line}: the header names {', '.join(map(repr, twice))} twice. Rename one column.")
