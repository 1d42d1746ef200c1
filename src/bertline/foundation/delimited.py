"""Rows of delimited text (CSV, TSV), with errors for the damage that would otherwise pass as text."""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence

from bertline.foundation.errors import DataError

_ALIKE = 0.9
"""Share of the lines of a record that are rows by themselves, from which a quote must have swallowed them."""


def check_header(where: str, line: int, names: Sequence[str | int]) -> None:
    """Check the names of the columns.

    Raises:
        DataError: Two columns have one name; of these one alone would be read.
    """
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{where}:{line}: the header names {', '.join(map(repr, twice))} twice. Rename one column.")


def unquoted_rows(
    lines: Iterable[str], separator: str, max_fields: int | None = None
) -> Iterator[tuple[int, int, list[str]]]:
    """Yield line number, number of lines (1) and fields of each row; quotes are text.

    Blank lines are skipped, unless a line is one field (`max_fields` of 1), which is empty then.
    """
    most_cuts = -1 if max_fields is None else max_fields - 1
    for line, content in enumerate(lines, start=1):
        content = content.rstrip("\r\n")
        if most_cuts == 0 or content not in ("", "\ufeff"):
            yield line, 1, content.split(separator, most_cuts)


def quoted_rows(lines: Iterable[str], separator: str, *, where: str, hint: str) -> Iterator[tuple[int, int, list[str]]]:
    """Yield the number of the first line, the number of lines, and the fields of each row; blank lines are skipped.

    A file is believed where all its quotes enclose whole fields and all its rows have as many fields as the first, as
    writers of CSV make it. In other files a quote may be text, and a record over many lines the work of two of them.

    Raises:
        DataError: Quotes do not pair up, or in such another file one of them swallowed whole rows. That may be seen
            only at a later row.
    """
    csv.field_size_limit(1 << 30)
    quoted_field = re.compile(rf'(?:^|(?<={re.escape(separator)}))"[^"]*(?:""[^"]*)*"')
    remembered: list[str] = []

    def remembering() -> Iterator[str]:
        for line in lines:
            # csv sees the quote of the first field only if no byte order mark precedes it.
            remembered.append(line.removeprefix("\ufeff") if reader.line_num == 0 else line)
            yield remembered[-1]

    reader = csv.reader(remembering(), delimiter=separator, strict=True)
    width: int | None = None
    is_believed, swallowed = True, ""
    while True:
        line = reader.line_num + 1
        remembered.clear()
        try:
            fields = next(reader, None)
        except csv.Error as error:
            invalid = f"{where}:{line}: not valid CSV ({error}) in the record that starts here. {hint}"
            raise DataError(swallowed or invalid) from error
        if fields is None:
            return
        if not fields:
            continue
        width = width or len(fields)
        if '"' in (record := "".join(remembered)):
            is_believed &= '"' not in quoted_field.sub("", record)
        is_believed &= len(fields) == width
        if not swallowed and len(remembered) > 1 and _swallowed_rows(remembered, len(fields), separator):
            swallowed = (
                f"{where}:{line}: a quote opens here and closes {len(remembered) - 1} lines further down, and each of "
                f"these lines is a whole row by itself. {hint} If such lines are really text, let a writer of "
                "CSV (pandas, a spreadsheet) write the whole file, or keep the rows as JSONL or Parquet."
            )
        if swallowed and not is_believed:
            raise DataError(swallowed)
        yield line, len(remembered), fields


def _swallowed_rows(lines: list[str], width: int, separator: str) -> bool:
    """Return whether the lines of a record would be rows of the right width if the quotes around them were plain text.

    Real multi-line text rarely has the same number of separators as a row in each of its lines. A separator before a
    space or a line end counts as punctuation.

    >>> _swallowed_rows(['"5 foot,x\\n', 'he is 6",y\\n'], 2, ",")
    True
    >>> _swallowed_rows(['"Dear Sir,\\n', 'thank you, all of you",y\\n'], 2, ",")
    False
    """

    def is_row(line: str) -> bool:
        line = line.rstrip("\r\n")
        rest = line.split(separator)[1:]
        if 1 + (len(rest) if separator.isspace() else sum(not r[:1].isspace() and r != "" for r in rest)) == width:
            return True
        try:
            return [len(fields) for fields in csv.reader([line], delimiter=separator, strict=True)] == [width]
        except csv.Error:
            return False

    return width > 1 and sum(map(is_row, lines)) >= _ALIKE * len(lines)
