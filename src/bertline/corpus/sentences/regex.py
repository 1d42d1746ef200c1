"""Sentences end where a regular expression matches."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from bertline.corpus.sentences.splitter import Batches, SentenceSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class RegexConfig(SentenceSettings):
    """A sentence ends at the end of each match of a regular expression of one's own."""

    kind: Literal["regex"]
    pattern: str
    """Regular expression of Python's `re`; what it matches belongs to the sentence before: `[.!?]+(?=\\s)`."""

    def __post_init__(self) -> None:
        try:
            pattern = re.compile(self.pattern)
        except re.error as error:
            raise ValueError(
                f"pattern is not a regular expression: {error}; found {self.pattern!r}. Quote it in YAML with single "
                r"quotes, for example '[.!?]+(?=\s)'"
            ) from error
        if pattern.match("") is not None:
            raise ValueError(
                f"pattern matches the empty text, so that every character would be a sentence; found {self.pattern!r}. "
                r"Let it match at least one character, for example '[.!?]+(?=\s)'"
            )

    def splitter(self, read: Batches, *, num_workers: int) -> RegexSplitter:
        """Return the splitter; the corpus is not read."""
        return RegexSplitter(re.compile(self.pattern))


@dataclass(frozen=True, slots=True)
class RegexSplitter:
    """Splits behind each match of a pattern."""

    pattern: re.Pattern[str]
    keeps_lines: ClassVar[bool] = False

    def split(self, paragraph: str) -> list[str]:
        r"""Return the texts between the ends of matches, without white space around them.

        Example:
            >>> RegexSplitter(re.compile(r";(?=\s)")).split("a. b; c;d; e")
            ['a. b;', 'c;d;', 'e']
        """
        sentences = []
        start = 0
        for match in self.pattern.finditer(paragraph):
            sentences.append(paragraph[start : match.end()].strip())
            start = match.end()
        sentences.append(paragraph[start:].strip())
        return [sentence for sentence in sentences if sentence]

    def learned(self) -> dict[str, Any]:
        """Return nothing: no text is read in advance."""
        return {}
