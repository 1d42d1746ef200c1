"""Lines that recur in many documents: notices, menus, headers and footers of pages.

References:
    Manku and Motwani, "Approximate frequency counts over data streams", 2002, section 4.2 (lossy counting).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Set

MAX_COUNTED = 1_000_000
"""Distinct lines that are counted at a time, in about 100 MB."""
_FEWEST_OF_SENTENCE = 5
"""Words from which a whole sentence may be boilerplate: "Yes, sir." is in every novel."""
_FEWEST_OF_NOTICE = 7
"""Words from which a whole sentence may be boilerplate though the line before did not end: a notice below a title."""
_DIGITS = re.compile(r"\d+")
_SENTENCE_ENDS = (".", "!", "?", "\u3002", "\u2026", ",", ";", ":", '"', "'", "\u201d", "\u2019")


def line_key(line: str) -> int:
    """Return a hash that is equal for lines that differ only in case, white space and numbers.

    Example:
        >>> line_key("Page 3 of 12") == line_key("page  4 of 9")
        True
    """
    text = " ".join(_DIGITS.sub("0", line.casefold()).split())
    return int.from_bytes(hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest(), "little")


def judged_lines(paragraph: str) -> Iterator[tuple[int, str]]:
    r"""Yield the lines of a paragraph that may be boilerplate, with their numbers.

    Lines of running text are not judged, since any short one may recur: those that begin in lower case, and those that
    end a sentence which the line before began, unless they have seven words: such a notice stands below a title. A
    sentence of fewer than five words is not judged either.

    Example:
        >>> list(judged_lines("Page 3 of 12\nIt was said by\nMr. Holmes.\nof course"))
        [(0, 'Page 3 of 12'), (1, 'It was said by')]
    """
    before = ""
    for number, line in enumerate(paragraph.split("\n")):
        text = line.strip()
        if text and not text[0].islower():
            goes_on = before and not before.endswith(_SENTENCE_ENDS)
            fewest = _FEWEST_OF_NOTICE if goes_on else _FEWEST_OF_SENTENCE
            if not text.endswith(_SENTENCE_ENDS) or len(text.split()) >= fewest:
                yield number, text
        before = text


class LineCounts:
    """Number of documents with each line, in bounded memory; of very many distinct lines the rare ones are forgotten.

    The result depends on the documents and their order alone.
    """

    def __init__(self, max_counted: int = MAX_COUNTED) -> None:
        self._counts: dict[int, int] = {}
        self._max_counted = max_counted
        self._forgotten = 0
        """Occurrences that a line may have lost."""
        self._lost_before: dict[int, int] = {}
        """`_forgotten` when each line that is counted was entered, if it was not zero."""

    def add(self, keys: Iterable[int]) -> None:
        """Count the keys of the distinct lines of a document."""
        counts = self._counts
        for key in keys:
            if key in counts:
                counts[key] += 1
            else:
                counts[key] = 1
                if self._forgotten:
                    self._lost_before[key] = self._forgotten
        if len(counts) > self._max_counted:
            self._forget()

    def _forget(self) -> None:
        while len(self._counts) > self._max_counted // 2:
            self._forgotten += 1
            lost = self._lost_before
            self._counts = {
                key: count for key, count in self._counts.items() if count + lost.get(key, 0) > self._forgotten
            }
            self._lost_before = {key: lost[key] for key in self._counts if key in lost}

    def at_least(self, documents: int) -> list[int]:
        """Return the keys of the lines that occur in as many documents, sorted."""
        return sorted(key for key, count in self._counts.items() if count >= documents)


def without_lines(paragraph: str, repeated: Set[int]) -> tuple[str, list[str]]:
    """Remove repeated lines.

    Args:
        paragraph: Lines with line breaks between them.
        repeated: Their keys.

    Returns:
        The paragraph without them, and the lines.
    """
    found = {number: line for number, line in judged_lines(paragraph) if line_key(line) in repeated}
    if not found:
        return paragraph, []
    kept = (line for number, line in enumerate(paragraph.split("\n")) if number not in found)
    return "\n".join(kept), list(found.values())
