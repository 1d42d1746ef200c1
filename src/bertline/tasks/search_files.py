"""Readers of search collections: BEIR and SMART folders (`trec_collection` has TREC's), and what all readers share."""

from __future__ import annotations

import gzip
import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertline.foundation.errors import DataError
from bertline.tasks.bad_rows import BadRow, BadRows, json_object
from bertline.tasks.cells import text_in
from bertline.tasks.decoded_files import gzip_damage_named
from bertline.tasks.source_config import BeirSourceConfig, SmartSourceConfig
from bertline.tasks.stored_rows import SplitName

_SPACE = re.compile(r"\s+")
_MARKUP = re.compile(r"<[^<>]*>")
_SMART_RECORD = re.compile(r"\.I\s+(\S+)\s*$")
# A field's mark is alone on its line; a line of text may begin with a full stop too.
_SMART_FIELD = re.compile(r"\.([A-Z])\s*$")


@dataclass(frozen=True, slots=True)
class RawText:
    """A document or query as read from its file."""

    where: str
    """File and line, for messages."""
    id: str
    text: str
    title: str = ""


Judgement = tuple[str, str, int | None]
"""Query, document and relevance (0 or below: judged not relevant; None: not a whole number)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Collection:
    """A collection in its files; documents and queries are read when they are iterated over."""

    folder: str
    documents: Iterator[RawText]
    queries: Iterator[RawText]
    judgement_files: dict[SplitName, str] = field(default_factory=dict)
    """Names of the files with one judgement per line."""
    judgement_in: Callable[[str], Judgement | None] = lambda line: None
    """Parses such a line; None if it is malformed."""
    expected: str = ""
    """What a line should have, for messages."""
    judged: dict[SplitName, dict[str, dict[str, int]]] = field(default_factory=dict)
    """Relevance by query and document, of a collection that has no file of judgements."""
    may_have_header: bool = False
    """Whether the first line of such a file may name the columns."""


def existing_file(folder: str, name: str) -> Path:
    """Return the path of a source's file, or of `NAME.gz` if only that exists.

    Raises:
        DataError: Neither file exists.
    """
    path = Path(folder) / name
    for found in (path, path.with_name(f"{path.name}.gz")):
        if found.is_file():
            return found
    raise DataError(f"{path} is not a file. Put the data there, or a link to it, or change the task's source.")


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line numbers, from 1, and lines of a UTF-8 file, plain or `.gz`, without line ends and byte order mark.

    Raises:
        DataError: A line is not UTF-8, or the gzip file is truncated or corrupt.
    """
    number = 0
    try:
        with gzip_damage_named(path), gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as handle:
            for number, line in enumerate(handle, start=1):
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}:{number} is not UTF-8 text. Convert the file (iconv -f latin1 -t utf-8, say, for an old one)."
        ) from error


def one_line(text: str) -> str:
    """Replace every run of white space by one space, and strip both ends.

    >>> one_line("  a wing\\nin a  slipstream . ")
    'a wing in a slipstream .'
    """
    return _SPACE.sub(" ", text).strip()


def without_markup(text: str) -> str:
    """Return the text of an SGML element on one line, without tags and with entities (`&amp;`) decoded.

    >>> without_markup("lift <i>and</i> drag &lt; 1")
    'lift and drag < 1'
    """
    return one_line(html.unescape(_MARKUP.sub(" ", text)))


def relevance_of(text: str) -> int | None:
    """Parse a relevance as an integer (`1`, `-1`, `2.0`); None if it is not one.

    >>> relevance_of("2"), relevance_of("1.0"), relevance_of("high"), relevance_of("nan")
    (2, 1, None, None)
    """
    try:
        value = float(text)
        return int(value) if value == int(value) else None
    except (ValueError, OverflowError):
        return None


def beir_collection(source: BeirSourceConfig, bad: BadRows) -> Collection:
    """Return the parts of a BEIR folder (arXiv 2104.08663).

    `corpus.jsonl` has `_id`, `text` and, if present, `title`; `queries.jsonl` has `_id` and `text`. A qrels file has
    query, document and relevance between tabs, with or without a header line.
    """

    def judgement_in(line: str) -> Judgement | None:
        fields = [field.strip() for field in line.split("\t")]
        return (fields[0], fields[1], relevance_of(fields[2])) if len(fields) == 3 else None

    files = {"train": source.train_qrels, "dev": source.dev_qrels, "test": source.test_qrels}
    return Collection(
        folder=source.path,
        documents=_beir_texts(source.path, "corpus.jsonl", bad, has_titles=True),
        queries=_beir_texts(source.path, "queries.jsonl", bad, has_titles=False),
        judgement_files={split: name for split, name in files.items() if name is not None},
        judgement_in=judgement_in,
        expected="query id, document id and whole number between tabs",
        may_have_header=True,
    )


def _beir_texts(folder: str, name: str, bad: BadRows, *, has_titles: bool) -> Iterator[RawText]:
    path = existing_file(folder, name)
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            record = json_object(line)
            _check_beir(record)
        except BadRow as problem:
            bad.report(problem.reason, f"{where}: {problem}.")
            continue
        title = text_in(record.get("title")) if has_titles else None
        yield RawText(where, str(record["_id"]), one_line(text_in(record["text"]) or ""), one_line(title or ""))


def _check_beir(record: dict[str, Any]) -> None:
    identity = record.get("_id")
    if isinstance(identity, bool) or not isinstance(identity, str | int) or not str(identity).strip():
        raise BadRow("malformed_line", f"it has the _id {identity!r}; expected a text or a whole number")
    title = record.get("title")
    for key, value in (("text", record.get("text")), ("title", "" if title is None else title)):
        if text_in(value) is None:
            raise BadRow("malformed_line", f"it has {value!r} as its {key}; expected a text")


def smart_collection(source: SmartSourceConfig, bad: BadRows) -> Collection:
    """Return the parts of a SMART collection such as CISI: records begin with `.I NUMBER`, fields with `.T`, `.W`, ...

    `.T` is the title and `.W` the text of a document, and `.W` that of a query. Authors (`.A`), citations (`.X`) and
    other fields are ignored. A relation file has query number, number of a relevant document and, in CISI,
    `0 0.000000`; a line of four columns with 0 or Q0 in the second is read in TREC format: query, 0, document,
    relevance (MED).
    """

    def judgement_in(line: str) -> Judgement | None:
        fields = line.split()
        if len(fields) == 4 and fields[1] in ("0", "Q0"):
            return fields[0], fields[2], relevance_of(fields[3])
        if len(fields) == 2 or (len(fields) == 4 and relevance_of(fields[2]) == relevance_of(fields[3]) == 0):
            return fields[0], fields[1], 1
        return None

    return Collection(
        folder=source.path,
        documents=_smart_texts(source.path, source.documents_file, bad, title_field="T"),
        queries=_smart_texts(source.path, source.queries_file, bad, title_field=None),
        judgement_files={"test": source.judgements_file},
        judgement_in=judgement_in,
        expected="a query number and a document number (and perhaps `0 0.000000`)",
    )


def _smart_texts(folder: str, name: str, bad: BadRows, *, title_field: str | None) -> Iterator[RawText]:
    path = existing_file(folder, name)
    where, identity, field = "", "", ""
    fields: dict[str, list[str]] = {}

    def text_of(mark: str | None) -> str:
        return one_line("\n".join(fields.get(mark or "", ())))

    for number, line in numbered_lines(path):
        start, mark = _SMART_RECORD.match(line), _SMART_FIELD.match(line)
        if start is not None:
            if identity:
                yield RawText(where, identity, text_of("W"), text_of(title_field))
            where, identity, fields, field = f"{path}:{number}", start[1], {}, ""
        elif mark is not None and identity:
            field = mark[1]
        elif field:
            # The lines of a repeated field (several `.A`) are joined.
            fields.setdefault(field, []).append(line)
        elif line.strip():
            bad.report(
                "malformed_line",
                f"{path}:{number} is {line[:80]!r}; expected `.I NUMBER` or a field's mark (`.W`).",
            )
    if not identity:
        raise DataError(f"{path} has no line `.I NUMBER`. Is it a SMART collection?")
    yield RawText(where, identity, text_of("W"), text_of(title_field))
