"""Reader of BEIR folders (arXiv 2104.08663): corpus.jsonl, queries.jsonl and qrels files of three columns."""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

from bertline.tasks.bad_rows import BadRow, BadRows, json_object
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


def beir_documents(folder: str, bad: BadRows) -> Iterator[RawDocument]:
    """Read documents from `corpus.jsonl` or `corpus.jsonl.gz`: `_id`, `text` and, if present, `title`."""
    path = existing_file(folder, "corpus.jsonl")
    for where, record in _records(path, bad):
        yield RawDocument(where, record["_id"], one_line(record.get("title") or ""), one_line(record["text"]))


def beir_queries(folder: str, bad: BadRows) -> Iterator[RawQuery]:
    """Read queries from `queries.jsonl` or `queries.jsonl.gz`: `_id` and `text`."""
    path = existing_file(folder, "queries.jsonl")
    for where, record in _records(path, bad):
        yield RawQuery(where, record["_id"], one_line(record["text"]))


def beir_judgements(
    folder: str, name: str, bad: BadRows, *, queries: Container[str], documents: Container[str]
) -> Iterator[Judgement]:
    """Read a qrels file: tab-separated query, document and relevance, with or without a header line.

    Args:
        folder: Folder of the source.
        name: Name of the qrels file.
        bad: Collects malformed lines.
        queries: Known query ids. Together with `documents` they tell a header from a malformed judgement.
        documents: Known document ids.
    """

    def judged(number: int, line: str) -> tuple[str, str, int | None] | None:
        fields = [field.strip() for field in line.split("\t")]
        if number == 1 and _is_header(fields, queries, documents):
            return None
        return (fields[0], fields[1], relevance_of(fields[2])) if len(fields) == 3 else ("", "", None)

    expected = "query id, document id and whole number between tabs"
    yield from read_judgements(existing_file(folder, name), judged, expected, bad)


def _is_header(fields: list[str], queries: Container[str], documents: Container[str]) -> bool:
    if len(fields) != 3 or relevance_of(fields[2]) is not None:
        return False
    return fields[0].casefold() == "query-id" or (fields[0] not in queries and fields[1] not in documents)


def _records(path: Path, bad: BadRows) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            record = json_object(line)
            _check(record)
        except BadRow as problem:
            bad.found(BadRow(problem.reason, f"{where}: {problem}."))
            continue
        yield where, {**record, "_id": str(record["_id"])}


def _check(record: dict[str, Any]) -> None:
    identity = record.get("_id")
    if isinstance(identity, bool) or not isinstance(identity, str | int) or not str(identity).strip():
        raise BadRow("malformed_line", f"it has the _id {identity!r}; expected a text or a whole number")
    for key in ("text", "title"):
        value = record.get(key, "" if key == "title" else None)
        if not isinstance(value, str) and not (key == "title" and value is None):
            raise BadRow("malformed_line", f"it has {value!r} as its {key}; expected a text")
