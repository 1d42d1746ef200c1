"""Sentences by rules, by lines and by a pattern: no trained model, no external data, the same on every machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from bertline.corpus.sentences.splitter import Batches, SentenceSettings

_OPENING = "\"'“‘«([{¿¡"
# A possible sentence end: closing punctuation, closing quotes or brackets, white space, and then a possible start of a
# sentence. Chinese and Japanese marks need no white space. Quantifiers are possessive (`++`), and a run of marks is
# matched only from its first one: otherwise a long row of dots takes quadratic time.
_END = re.compile(
    r"(?<![.!?…])(?P<marks>[.!?…]++)(?P<closing>[\"'”’»)\]}]*+)\s++(?=["
    + re.escape(_OPENING)
    + r"]*+(?P<next>[^\W_]{1,12}))|[。！？]++[」』”’）]*+\s*+(?=\S)"
)

# Abbreviations followed by a name, a number or an explanation: the sentence continues, whatever the case of the next
# word.
_TITLES = frozenset(
    {
        *("mr", "mrs", "ms", "messrs", "mme", "mlle", "dr", "prof", "rev", "hon", "st", "sr", "jr", "fr", "amb"),
        *("gen", "col", "maj", "capt", "lt", "sgt", "cpl", "adm", "cmdr", "gov", "sen", "rep", "pres", "supt", "insp"),
        *("vol", "vols", "pp", "fig", "figs", "eq", "eqs", "eqn", "eqns", "sec", "secs", "ch", "chap", "thm", "prop"),
        *("ed", "eds", "ref", "refs", "vs", "cf", "e.g", "i.e", "eg", "ie", "viz", "approx", "ca", "resp", "op"),
        *("cit", "ibid"),
    }
)
# Abbreviations only before a number: "No. 5", "Jan. 1", "p. 12", but "He said no. She left."
_BEFORE_NUMBERS = frozenset(
    {
        *("no", "nos", "p", "art", "tab", "v", "c", "al"),
        *("jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec"),
    }
)
# Words that are far more often the start of a sentence than a surname.
_STARTERS = frozenset(
    {
        *("The", "This", "These", "That", "Those", "There", "It", "Its", "In", "If", "For", "When", "While", "Where"),
        *("He", "She", "We", "They", "You", "His", "Her", "Their", "And", "But", "Or", "As", "At", "By", "On", "To"),
        *("Then", "Thus", "Hence", "However", "Otherwise", "Note", "See", "Each", "Every", "Any", "All", "With"),
        *("After", "Before", "Since", "Because", "Although", "Also", "Here", "Not", "No", "Use", "Used", "Default"),
    }
)


def split_sentences(text: str) -> list[str]:
    """Split one paragraph into sentences.

    A full stop ends a sentence unless it belongs to an abbreviation that needs a continuation or to an initial, or is
    followed by a lower-case letter. Decimals, versions and dotted names have no white space inside and are never split.

    Args:
        text: Cleaned text on one line.

    Returns:
        The sentences in order, none empty. Joined with single spaces they give the paragraph (Chinese and Japanese
        sentences: joined without spaces).

    Example:
        >>> split_sentences("Dr. J. Smith paid 3.5 dollars, e.g. in cash. Was it enough? See Fig. 2.")
        ['Dr. J. Smith paid 3.5 dollars, e.g. in cash.', 'Was it enough?', 'See Fig. 2.']
    """
    sentences = []
    start = 0
    for match in _END.finditer(text):
        if match["marks"] is None or _ends_sentence(text, start, match):
            sentences.append(text[start : match.end()].strip())
            start = match.end()
    sentences.append(text[start:].strip())
    return [sentence for sentence in sentences if sentence]


def _ends_sentence(text: str, start: int, match: re.Match[str]) -> bool:
    marks, following = match["marks"], match["next"]
    if following[0].islower():
        return False  # "What!" he cried; "and so on ... until"; "etc. are"
    if marks != "." or match["closing"]:
        return True
    word = text[max(start, text.rfind(" ", start, match.start()) + 1) : match.start()].lstrip(_OPENING)
    lowered = word.lower()
    if lowered in _TITLES or (following[0].isdigit() and lowered in _BEFORE_NUMBERS):
        return False
    if len(word) == 1 and start + 1 < match.start():
        # An initial ("J. Smith"); but "I.", a lower-case letter ("by x.") and "plan B. The" end a sentence.
        return not word.isupper() or word == "I" or following in _STARTERS
    # "1. Install it": a number alone at the start is a list marker, not a sentence.
    return not (word.isdigit() and match.start() - len(word) == start)


@dataclass(frozen=True, kw_only=True, slots=True)
class RulesConfig(SentenceSettings):
    """Rules for English prose with a fixed list of abbreviations; the same on every corpus."""

    kind: Literal["rules"]

    def splitter(self, read: Batches, *, num_workers: int) -> RuleSplitter:
        """Return the splitter; the corpus is not read."""
        return RuleSplitter()


@dataclass(frozen=True, slots=True)
class RuleSplitter:
    """Splits by `split_sentences`."""

    keeps_lines: ClassVar[bool] = False

    def split(self, paragraph: str) -> list[str]:
        """Return the sentences of a paragraph."""
        return split_sentences(paragraph)

    def learned(self) -> dict[str, Any]:
        """Return nothing: no text is read in advance."""
        return {}


# Text that is split already: one sentence a line.


@dataclass(frozen=True, kw_only=True, slots=True)
class LinesConfig(SentenceSettings):
    """Each line is a sentence: for text that another program has split."""

    kind: Literal["lines"]

    def splitter(self, read: Batches, *, num_workers: int) -> LineSplitter:
        """Return the splitter; the corpus is not read."""
        return LineSplitter()


@dataclass(frozen=True, slots=True)
class LineSplitter:
    """Splits at line breaks."""

    keeps_lines: ClassVar[bool] = True

    def split(self, paragraph: str) -> list[str]:
        r"""Return the lines.

        Example:
            >>> LineSplitter().split("It rained. Dr.\nSmith stayed.")
            ['It rained. Dr.', 'Smith stayed.']
        """
        return paragraph.split("\n")

    def learned(self) -> dict[str, Any]:
        """Return nothing: no text is read in advance."""
        return {}


# Sentences end where a regular expression matches.


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
