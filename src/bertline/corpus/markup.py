"""Recognition of markup in what should be plain text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

from bertline.corpus.lines import Line

_MAX_LINES = 200
_MAX_CHARACTERS = 50_000
_TAG = re.compile(r"</?[A-Za-z][\w:.-]*(?:\s[^<>]*)?/?>")
_MAX_TAG_SHARE = 0.2
"""Share of characters in tags above which text is markup; prose about HTML stays far below."""
_MIN_TAGS = 10
"""Fewer may be a sentence about a tag."""
_BEGINNINGS = (
    (re.compile(r"<doc id=", re.IGNORECASE), "corpus=wikiextractor"),
    (re.compile(r"<mediawiki\b", re.IGNORECASE), "WikiExtractor, then corpus=wikiextractor"),
    (re.compile(r"<(?:\w+:)?TEI\b|<teiCorpus\b"), "corpus=tei"),
    (re.compile(r"<!DOCTYPE html|<html\b", re.IGNORECASE), "a converter from HTML to text first"),
    (re.compile(r"<\?xml\b"), "corpus=xml"),
)


def reader_of_markup(text: str) -> str | None:
    """Return what reads a text that is markup, by its beginning; None if it is plain text.

    Example:
        >>> reader_of_markup('<?xml version="1.0"?><TEI xmlns="http://www.tei-c.org/ns/1.0">')
        'corpus=tei'
        >>> reader_of_markup("Use <script>.") is None
        True
        >>> reader_of_markup("The tag <b> makes text bold, </b> ends it.") is None
        True
    """
    text = text.lstrip()
    if text.startswith("<"):
        for beginning, reader in _BEGINNINGS:
            if beginning.search(text[:2_000]) if reader != "corpus=xml" else beginning.match(text):
                return reader
    tags = _TAG.findall(text)
    mostly = len(tags) >= _MIN_TAGS and sum(map(len, tags)) > _MAX_TAG_SHARE * len(text)
    return "corpus=xml" if mostly else None


def peeked(lines: Iterator[Line]) -> tuple[str, Iterator[Line]]:
    """Return the beginning of the lines as one text, and all of the lines."""
    first: list[Line] = []
    characters = 0
    for line in lines:
        first.append(line)
        characters += len(line.text)
        if len(first) >= _MAX_LINES or characters >= _MAX_CHARACTERS:
            break
    return "\n".join(line.text[:_MAX_CHARACTERS] for line in first), chain(first, lines)
