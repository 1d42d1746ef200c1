"""Which texts occur in what the encoder was pretrained on: no dev or test row of a docs_* task may."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from bertline.corpus.cleaning import clean, duplicate_key
from bertline.corpus.python_docs import ModuleDocs

PRETRAINED_ON = "pretrained_on"
"""The reason under which such rows are counted."""
_WORD = re.compile(r"\w+")
_ANCHOR_WORDS = 3

Item = TypeVar("Item")


def without_pretrained(
    held_out: Mapping[str, Sequence[Item]],
    modules: Sequence[ModuleDocs],
    texts_of: Callable[[Item], Iterable[str]],
    dropped: Counter[str],
    *,
    also_as: Callable[[str], str] | None = None,
) -> dict[str, list[Item]]:
    """Drop what held-out modules give to a task where it occurs in the text of a module that is pretrained on.

    It may stand there anywhere: as a paragraph, as a sentence of one, as a part of a sentence, across paragraphs, and
    in documentation that the task itself makes nothing of.

    Args:
        held_out: Rows, or what rows are made of, of each held-out module.
        modules: All modules, in reading order.
        texts_of: The texts of an item, each of which drops it.
        dropped: Counts what is dropped under `PRETRAINED_ON`.
        also_as: How the task rewrites text; what is pretrained on is searched rewritten as well as unchanged.
    """
    texts = {text for items in held_out.values() for item in items for text in texts_of(item)}
    found = texts_found(texts, pretrained_texts(modules, also_as=also_as))
    kept = {module: [item for item in items if found.isdisjoint(texts_of(item))] for module, items in held_out.items()}
    if number := sum(map(len, held_out.values())) - sum(map(len, kept.values())):
        dropped[PRETRAINED_ON] += number
    return kept


def pretrained_texts(modules: Iterable[ModuleDocs], *, also_as: Callable[[str], str] | None = None) -> Iterator[str]:
    """The prose of each module that is not held out, whole, as the corpus has it.

    A corpus without its repeated paragraphs joins what stood apart: such a module comes in both ways.
    """
    seen: set[bytes] = set()
    for module in modules:
        paragraphs = [text for docstring in module.docstrings for text in docstring.prose.paragraphs]
        first: list[str] = []
        for paragraph in paragraphs:
            key = duplicate_key(clean(paragraph))
            if key not in seen:
                seen.add(key)
                first.append(paragraph)
        if module.held_out:
            continue
        for text in (paragraphs, first) if 1 < len(first) < len(paragraphs) else (paragraphs,):
            yield " ".join(text)
            if also_as is not None:
                yield " ".join(map(also_as, text))


def texts_found(texts: Iterable[str], searched: Iterable[str]) -> set[str]:
    """Those of some texts that occur in one of the searched texts, whatever the case, white space and punctuation.

    Args:
        texts: What to look for; a text without a word is not found.
        searched: Read once, one at a time.

    Example:
        >>> sorted(texts_found(["Sum of  squares.", "Sum of cubes."], ["Return the sum of `squares`, or None."]))
        ['Sum of  squares.']
    """
    waiting: dict[str, list[str]] = {}
    for text in texts:
        if words := _words(text):
            waiting.setdefault(" ".join(words), []).append(text)
    anchors: dict[tuple[str, ...], list[str]] = {}
    for wanted in waiting:
        anchors.setdefault(_anchor(wanted.split()), []).append(wanted)
    lengths = sorted({len(anchor) for anchor in anchors})
    found: set[str] = set()
    for text in searched:
        words = _words(text)
        joined = " ".join(words)
        for length in lengths:
            # An empty n-gram occurs in every text.
            present = {()} if not length else set(zip(*(words[start:] for start in range(length)), strict=False))
            for anchor in anchors.keys() & present:
                found.update(wanted for wanted in anchors[anchor] if wanted not in found and wanted in joined)
    return {text for wanted in found for text in waiting[wanted]}


def _words(text: str) -> list[str]:
    return _WORD.findall(clean(text).casefold())


def _anchor(words: list[str]) -> tuple[str, ...]:
    """Neighbouring words by which a text is looked up; its first and last may stand inside longer words."""
    inner = words[1:-1]
    length = min(_ANCHOR_WORDS, len(inner))
    starts = range(len(inner) - length + 1)
    place = max(starts, key=lambda start: sum(map(len, inner[start : start + length])))
    return tuple(inner[place : place + length])
