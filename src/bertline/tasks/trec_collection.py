"""Reader of TREC collections: `<DOC>` and `<top>` elements, and judgements of four columns.

The files are SGML, not XML: they have no root element, unclosed elements and bare `&`. So elements are found by their
tags with regular expressions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bertline.foundation.errors import DataError
from bertline.tasks.bad_rows import BadRows
from bertline.tasks.search_files import (
    Collection,
    Judgement,
    RawText,
    existing_file,
    numbered_lines,
    relevance_of,
    without_markup,
)
from bertline.tasks.source_config import TrecSourceConfig

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
        found = re.findall(rf"<{name}(?:\s[^<>]*)?>(.*?)</{name}>", content, re.IGNORECASE | re.DOTALL)
        if found:
            return " ".join(found)
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
    found = re.search(rf"<{name}>(.*?)(?=</?(?:num|title|desc|narr|{name})\b|\Z)", content, re.IGNORECASE | re.DOTALL)
    return "" if found is None else found[1]
