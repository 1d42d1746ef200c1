"""BEIR folders (arXiv 2104.08663): corpus.jsonl, queries.jsonl and qrels of three columns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bertline.tasks.bad_rows import BadRow, BadRows
from bertline.tasks.search_files import (
    Judgement,
    RawDocument,
    RawQuery,
    existing_file,
    numbered_lines,
    one_line,
    relevance_of,
)


def beir_documents(folder: str, bad: BadRows) -> Iterator[RawDocument]:
    """`corpus.jsonl` or `corpus.jsonl.gz`: `_id`, `text` and, where there is one, `title`."""
    path = existing_file(folder, "corpus.jsonl")
    for where, record in _records(path, bad):
        yield RawDocument(where, record["_id"], one_line(record.get("title") or ""), one_line(record["text"]))


def beir_queries(folder: str, bad: BadRows) -> Iterator[RawQuery]:
    """`queries.jsonl` or `queries.jsonl.gz`: `_id` and `text`."""
    path = existing_file(folder, "queries.jsonl")
    for where, record in _records(path, bad):
        yield RawQuery(where, record["_id"], one_line(record["text"]))


def beir_judgements(folder: str, name: str, bad: BadRows) -> Iterator[Judgement]:
    """A qrels file: query, document and score between tabs, with or without a header line."""
    path = existing_file(folder, name)
    for number, line in numbered_lines(path):
        fields = [field.strip() for field in line.split("\t")]
        if not line.strip() or (number == 1 and len(fields) == 3 and relevance_of(fields[2]) is None):
            continue
        relevance = relevance_of(fields[2]) if len(fields) == 3 else None
        if relevance is None:
            bad.found(
                BadRow(
                    "malformed_judgement",
                    f"{path}:{number} is {line[:80]!r}; expected query id, document id and whole number between tabs.",
                )
            )
            continue
        yield Judgement(f"{path}:{number}", fields[0], fields[1], relevance)


def _records(path: Path, bad: BadRows) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            record = json.loads(line)
        except ValueError as error:
            bad.found(BadRow("malformed_line", f"{where} is not a JSON object ({error})."))
            continue
        problem = _problem(record)
        if problem is not None:
            bad.found(BadRow("malformed_line", f"{where} {problem}"))
            continue
        yield where, {**record, "_id": str(record["_id"])}


def _problem(record: Any) -> str | None:
    if not isinstance(record, dict):
        return f"is a JSON {type(record).__name__}; expected an object with _id and text."
    identity = record.get("_id")
    if isinstance(identity, bool) or not isinstance(identity, str | int) or not str(identity).strip():
        return f"has the _id {identity!r}; expected a text or a whole number."
    for key in ("text", "title"):
        value = record.get(key, "" if key == "title" else None)
        if not isinstance(value, str) and not (key == "title" and value is None):
            return f"has {value!r} as its {key}; expected a text."
    return None
