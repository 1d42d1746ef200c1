"""Reader of SMART collections such as CISI: records begin with `.I NUMBER`, fields with `.T`, `.A`, `.W`, `.X`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bertline.foundation.errors import DataError
from bertline.tasks.bad_rows import BadRow, BadRows
from bertline.tasks.search_files import (
    Judgement,
    RawDocument,
    RawQuery,
    existing_file,
    numbered_lines,
    one_line,
    read_judgements,
    relevance_of,
)

_RECORD = re.compile(r"\.I\s+(\S+)\s*$")
# A field's mark is alone on its line; a line of text may begin with a full stop too.
_FIELD = re.compile(r"\.([A-Z])\s*$")


def smart_documents(folder: str, name: str, bad: BadRows) -> Iterator[RawDocument]:
    """Read documents: `.T` is the title and `.W` the text. Authors, citations (`.X`) and other fields are ignored."""
    for where, number, fields in _records(existing_file(folder, name), bad):
        yield RawDocument(where, number, one_line(fields.get("T", "")), one_line(fields.get("W", "")))


def smart_queries(folder: str, name: str, bad: BadRows) -> Iterator[RawQuery]:
    """Read queries: `.W` is the text."""
    for where, number, fields in _records(existing_file(folder, name), bad):
        yield RawQuery(where, number, one_line(fields.get("W", "")))


def smart_judgements(folder: str, name: str, bad: BadRows) -> Iterator[Judgement]:
    """Read a relation file: query number, number of a relevant document and, in CISI, `0 0.000000`.

    A line of four columns with 0 or Q0 in the second is read in TREC format: query, 0, document, relevance (MED).
    """

    def judged(number: int, line: str) -> tuple[str, str, int | None]:
        fields = line.split()
        if len(fields) == 4 and fields[1] in ("0", "Q0"):
            return fields[0], fields[2], relevance_of(fields[3])
        if len(fields) == 2 or (len(fields) == 4 and relevance_of(fields[2]) == relevance_of(fields[3]) == 0):
            return fields[0], fields[1], 1
        return "", "", None

    expected = "a query number and a document number (and perhaps `0 0.000000`)"
    yield from read_judgements(existing_file(folder, name), judged, expected, bad)


def _records(path: Path, bad: BadRows) -> Iterator[tuple[str, str, dict[str, str]]]:
    where, identity = "", ""
    fields: dict[str, list[str]] = {}
    field: str | None = None
    for number, line in numbered_lines(path):
        start, mark = _RECORD.match(line), _FIELD.match(line)
        if start is not None:
            if identity:
                yield where, identity, _joined(fields)
            where, identity, fields, field = f"{path}:{number}", start[1], {}, None
        elif mark is not None and identity:
            field = mark[1]
        elif field is not None:
            # The lines of a repeated field (several `.A`) are joined.
            fields.setdefault(field, []).append(line)
        elif line.strip():
            bad.found(
                BadRow(
                    "malformed_line",
                    f"{path}:{number} is {line[:80]!r}; expected `.I NUMBER` or a field's mark (`.W`).",
                )
            )
    if not identity:
        raise DataError(f"{path} has no line `.I NUMBER`. Is it a SMART collection?")
    yield where, identity, _joined(fields)


def _joined(fields: dict[str, list[str]]) -> dict[str, str]:
    return {name: "\n".join(lines) for name, lines in fields.items()}
