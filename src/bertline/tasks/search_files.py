"""Readers of search collections: BEIR and SMART folders, TREC's files, and line-aligned translations."""

from __future__ import annotations

import gzip
import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from bertline.foundation.errors import DataError
from bertline.tasks.bad_rows import BadRow, BadRows, json_object, text_in
from bertline.tasks.decoded_files import gzip_damage_named
from bertline.tasks.source_config import (
    BeirSourceConfig,
    SentencePairsSourceConfig,
    SmartSourceConfig,
    TrecSourceConfig,
)
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
    for candidate in (path, path.with_name(f"{path.name}.gz")):
        if candidate.is_file():
            return candidate
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
                "malformed_line", f"{path}:{number} is {line[:80]!r}; expected `.I NUMBER` or a field's mark (`.W`)."
            )
    if not identity:
        raise DataError(f"{path} has no line `.I NUMBER`. Is it a SMART collection?")
    yield RawText(where, identity, text_of("W"), text_of(title_field))


# Reader of TREC collections: `<DOC>` and `<top>` elements, and judgements of four columns.
#
# The files are SGML, not XML: they have no root element, unclosed elements and bare `&`. So elements are found by their
# tags with regular expressions.

_TITLES = ("title", "headline", "ttl")
_TEXTS = ("text", "abstract", "body")
_FIELD_BEGINS = rf"<(?:{'|'.join(('docno', *_TITLES, *_TEXTS))})(?:\s[^<>]*)?>"
_TEXT_BEGINS = re.compile(rf"<(?:{'|'.join(_TEXTS)})[\s>]", re.IGNORECASE)
# Elements that mark up text and whose content belongs to it; all others hold fields (dates, bylines, numbers).
_MARKS_OF_TEXT = frozenset({"p", "b", "i", "em", "strong", "u", "sub", "sup", "br", "span", "div", "s", "a", "f"})
_ELEMENT = re.compile(r"<([a-z][\w-]*)(?:\s[^<>]*)?>.*?</\1>", re.IGNORECASE | re.DOTALL)
# Labels that classic topics put before a field's content: `<num> Number: 301`, `<title> Topic: ...`.
_NUMBER_LABEL = re.compile(r"^number\s*:\s*", re.IGNORECASE)
_TOPIC_LABEL = re.compile(r"^(topic|description)\s*:\s*", re.IGNORECASE)


def trec_collection(source: TrecSourceConfig, bad: BadRows) -> Collection:
    """Return the parts of a TREC collection; a qrels file has query, iteration (ignored), document and relevance."""

    def judgement_in(line: str) -> Judgement | None:
        fields = line.split()
        return (fields[0], fields[2], relevance_of(fields[3])) if len(fields) == 4 else None

    return Collection(
        folder=source.path,
        documents=_documents(source, bad),
        queries=_queries(source, bad),
        judgement_files={"test": source.judgements_file},
        judgement_in=judgement_in,
        expected="four columns: query, 0, document, relevance",
    )


def _documents(source: TrecSourceConfig, bad: BadRows) -> Iterator[RawText]:
    """Read documents with `<DOCNO>`, a title (`<TITLE>`, `<HEADLINE>`) and `<TEXT>`; other elements are ignored.

    A document without `<TEXT>` may have its text directly in `<DOC>`: then the text is everything outside elements,
    except elements that mark up text (`<P>`, `<I>`), which are kept. An unclosed text ends where the next of these
    fields begins or the document ends.
    """
    for where, content in _elements(existing_file(source.path, source.documents_file), "doc", bad):
        identity = without_markup(_field(content, ("docno",)))
        if not identity:
            bad.report("malformed_line", f"{where}: a <doc> without <docno>.")
            continue
        title, text = without_markup(_field(content, _TITLES)), without_markup(_text(content))
        if not text and not _TEXT_BEGINS.search(content):
            # The content outside closed elements, with the elements that mark up text.
            text = without_markup(
                _ELEMENT.sub(lambda found: found[0] if found[1].lower() in _MARKS_OF_TEXT else " ", content)
            )
        yield RawText(where, identity, text, title)


def _queries(source: TrecSourceConfig, bad: BadRows) -> Iterator[RawText]:
    """Read topics: the text is `<title>`, or `<desc>` if there is no title."""
    elements = _elements(existing_file(source.path, source.queries_file), "top", bad)
    for position, (where, content) in enumerate(elements, start=1):
        number = _NUMBER_LABEL.sub("", without_markup(_open_field(content, "num")))
        text = without_markup(_open_field(content, "title")) or without_markup(_open_field(content, "desc"))
        identity = str(position) if source.query_ids == "position" else number
        if not identity:
            bad.report("malformed_line", f"{where}: a <top> without <num>.")
            continue
        yield RawText(where, identity, _TOPIC_LABEL.sub("", text))


def _elements(path: Path, name: str, bad: BadRows) -> Iterator[tuple[str, str]]:
    """Yield the file and first line, and the content, of each `<NAME>...</NAME>`."""
    tag = re.compile(rf"<(/?){name}(?:\s[^<>]*)?>", re.IGNORECASE)
    where: str | None = None
    gathered: list[str] = []
    found = False
    for number, line in numbered_lines(path):
        end = 0
        for match in tag.finditer(line):
            if match[1]:
                if where is not None:
                    yield where, "\n".join([*gathered, line[end : match.start()]])
                where, found = None, True
            else:
                if where is not None:
                    bad.report("malformed_line", f"{where}: a <{name}> that is not closed before the next one begins.")
                where = f"{path}:{number}"
            gathered, end = [], match.end()
        if where is not None:
            gathered.append(line[end:])
    if where is not None:
        bad.report("malformed_line", f"{where}: a <{name}> that is never closed.")
    if not found:
        raise DataError(f"{path} has no <{name}> ... </{name}>. Is it a TREC file, and the right one?")


def _field(content: str, names: tuple[str, ...]) -> str:
    """Return the content of all closed elements with the first of these names that occurs; else empty."""
    for name in names:
        texts = re.findall(rf"<{name}(?:\s[^<>]*)?>(.*?)</{name}>", content, re.IGNORECASE | re.DOTALL)
        if texts:
            return " ".join(texts)
    return ""


def _text(content: str) -> str:
    """Return the content of all elements with the first name of `_TEXTS` that occurs; closed elements come first."""
    names = [name for name in _TEXTS if re.search(rf"</{name}>", content, re.IGNORECASE)]
    for name in [*names, *(name for name in _TEXTS if name not in names)]:
        element = re.compile(
            rf"<{name}(?:\s[^<>]*)?>(?:(.*?)</{name}>|(?<!/>)(.*?)(?={_FIELD_BEGINS}|\Z))", re.IGNORECASE | re.DOTALL
        )
        # An unclosed element without content must not hide text under another name.
        found = [
            left_open if closed is None else closed
            for closed, left_open in (match.groups() for match in element.finditer(content))
            if closed is not None or left_open.strip()
        ]
        if found:
            return " ".join(found)
    return ""


def _open_field(content: str, name: str) -> str:
    """Return the content of a topic's element up to the next tag: classic topics have no closing tags."""
    match = re.search(rf"<{name}>(.*?)(?=</?(?:num|title|desc|narr|{name})\b|\Z)", content, re.IGNORECASE | re.DOTALL)
    return "" if match is None else match[1]


# Reader of line-aligned translations as a search collection: find the translation of a sentence.


def sentence_pairs_collection(source: SentencePairsSourceConfig, bad: BadRows) -> Collection:
    """Return the sentences of every language as queries and their translations as documents.

    A translation that occurs several times, for whichever language, is one document; a sentence that occurs several
    times in a language is one query, and all its translations are relevant.

    Notes:
        XTREME (arXiv 2003.11080, Tatoeba) searches the 1,000 translations of one language; with several languages the
        collection here has those of all, which is harder.

    Raises:
        DataError: A file is missing or not UTF-8, or the two files of a language have different numbers of lines.
    """
    documents: dict[str, RawText] = {}
    queries: dict[tuple[str, str], RawText] = {}
    judged: dict[str, dict[str, int]] = {}
    for language in source.languages:
        paths = [
            existing_file(source.path, pattern.replace("{language}", language))
            for pattern in (source.queries_file, source.documents_file)
        ]
        for number, (query, document) in enumerate(_pairs(*paths), start=1):
            if not query or not document:
                bad.report("empty_sentence", f"{paths[0 if not query else 1]}:{number}: the line is blank.")
                continue
            name = f"{language}:{number}"
            found = documents.setdefault(document, RawText(f"{paths[1]}:{number}", name, document))
            asked = queries.setdefault((language, query), RawText(f"{paths[0]}:{number}", name, query))
            judged.setdefault(asked.id, {})[found.id] = 1
    return Collection(
        folder=source.path, documents=iter(documents.values()), queries=iter(queries.values()), judged={"test": judged}
    )


def _pairs(queries: Path, documents: Path) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for left, right in zip_longest(numbered_lines(queries), numbered_lines(documents)):
        if left is None or right is None:
            longer, shorter = (documents, queries) if left is None else (queries, documents)
            raise DataError(
                f"{longer}:{len(pairs) + 1}: {shorter} ends at line {len(pairs)}. Line n of one is the translation of "
                "line n of the other, so both need the same number of lines."
            )
        pairs.append((one_line(left[1]), one_line(right[1])))
    return pairs
