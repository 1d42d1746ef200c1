"""How paragraphs are split into sentences: settings, marks that may end a sentence, lines, patterns, and headings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, cast


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What the corpus says of its words."""

    abbreviations: frozenset[str]
    """Lower-cased abbreviations, without their final full stop."""
    before_numbers: frozenset[str]
    """Lower-cased words with a full stop that are abbreviations before a number alone ("no. 5")."""
    starters: frozenset[str]
    """Words that, with a capital, often begin a sentence."""
    words: frozenset[str]
    """Lower-cased short words that also occur without a full stop."""
    ordinals: bool
    """Whether a number with a full stop is an ordinal here ("3. Mai")."""
    large: bool
    """Whether so much was read that a word never seen without a full stop is most likely an abbreviation."""
    frequent: tuple[tuple[str, int], ...]
    """The most frequent abbreviations with their counts."""

    def summary(self) -> dict[str, Any]:
        """Return how many abbreviations were learned, with the most frequent ones to read."""
        return {
            "abbreviations": len(self.abbreviations),
            "before_numbers": len(self.before_numbers),
            "starters": len(self.starters),
            "most_frequent_abbreviations": {f"{word}.": number for word, number in self.frequent},
        }


class Splitter(Protocol):
    """Splits paragraphs; a pure function of the paragraph."""

    @property
    def keeps_lines(self) -> bool:
        """Whether the line breaks of the source matter."""

    def split(self, paragraph: str) -> list[str]:
        r"""Split one paragraph into sentences.

        Args:
            paragraph: Cleaned text, on one line; with `keeps_lines`, the cleaned lines of the source with `\n` between.

        Returns:
            The sentences in order, none empty, each on one line.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class SentenceSettings:
    """Settings of every kind of sentence splitting.

    A kind is one file of `corpus/sentences`, which `corpus/reader.py` lists in `SentencesConfig`.
    """

    learns: ClassVar[bool] = False
    """Whether the words of the corpus are counted first."""
    headings: Literal["stay", "joined", "dropped"]
    """Headings (`is_heading`): sentences of their own, the beginning of the next one, or left out and counted."""

    def splitter(self, knowledge: Knowledge) -> Splitter:
        """Make the splitter from what the corpus says of its words; a kind that does not learn is one itself."""
        return cast("Splitter", self)


@dataclass(frozen=True, kw_only=True, slots=True)
class LinesConfig(SentenceSettings):
    """Each line is a sentence: for text that another program has split."""

    kind: Literal["lines"]
    keeps_lines: ClassVar[bool] = True

    def split(self, paragraph: str) -> list[str]:
        r"""Return the lines.

        >>> LinesConfig(kind="lines", headings="stay").split("It rained. Dr.\nSmith stayed.")
        ['It rained. Dr.', 'Smith stayed.']
        """
        return paragraph.split("\n")


@dataclass(frozen=True, kw_only=True, slots=True)
class RegexConfig(SentenceSettings):
    """A sentence ends at the end of each match of a regular expression of one's own."""

    kind: Literal["regex"]
    pattern: str
    """Regular expression of Python's `re`; what it matches belongs to the sentence before: `[.!?]+(?=\\s)`."""
    keeps_lines: ClassVar[bool] = False

    def __post_init__(self) -> None:
        try:
            problem = "matches the empty text" if re.match(self.pattern, "") else None
        except re.error as error:
            problem = f"is not a regular expression: {error}"
        if problem:
            raise ValueError(
                f"pattern {problem}; found {self.pattern!r}. Quote it in YAML with single quotes, for example "
                r"'[.!?]+(?=\s)'"
            )

    def split(self, paragraph: str) -> list[str]:
        r"""Return the texts between the ends of matches, without white space around them.

        >>> RegexConfig(kind="regex", headings="stay", pattern=r";(?=\s)").split("a. b; c;d; e")
        ['a. b;', 'c;d;', 'e']
        """
        return cut_at(paragraph, [match.end() for match in re.finditer(self.pattern, paragraph)])


def cut_at(paragraph: str, ends: list[int]) -> list[str]:
    """Cut a paragraph at some places, in order, into texts without white space around them, none empty."""
    parts, start = [], 0
    for end in ends:
        parts.append(paragraph[start:end].strip())
        start = end
    return [part for part in (*parts, paragraph[start:].strip()) if part]


# Marks that may end a sentence, in all scripts, and what stands around them.

OPENING = "\"'“‘’„‚«‹([{¿¡「『（*_"
CLOSING = "\"'”’“»›)\\]}」』”’）*_"
# Marks that end a sentence wherever they stand: Devanagari, Ethiopic, Armenian, Burmese, Khmer, Tibetan, Mongolian,
# Santali, Manipuri, Syriac, N'Ko, Chinese (of Unicode's property Sentence_Terminal, and the shad of Tibetan).
_ALWAYS = "।॥።፧፨։၊။។៕\u0f0d-\u0f11\u0f14᠃᠉᱾᱿꫰꫱꯫܀܁܂߹。！？｡"
_TIBETAN = "\u0f0d-\u0f11\u0f14"
# Marks that do so before white space: Urdu, Arabic, Greek (U+037E) and typographic ones.
_BEFORE_SPACE = "۔؟⸮\u037e‽⁇⁈⁉"
SENTENCE_MARKS = f".!?…:;{_ALWAYS}{_BEFORE_SPACE}՜՞"
"""All marks that may end a sentence, as the inside of a set of a regular expression."""
# After an Armenian letter a colon, and after a Greek one a semicolon, is typed for the mark that looks like it.
_TYPED_FOR_MARK = r"(?<=[\u0531-\u0587]):|(?<=[\u0370-\u03ff\u1f00-\u1fff]);"
# A full stop, exclamation or question mark before white space: marks, closing, opening, next (a word or a sign).
# Quantifiers are possessive, and a run of marks matches from its first one only: a long row would take quadratic time.
# The set stands first, because `re` looks for a set much faster than for what a lookbehind allows.
STOP = re.compile(
    rf"([.!?…](?<![.!?…]{{2}})[.!?…]*+)([{CLOSING}]*+)\s++([{re.escape(OPENING)}]*+)(\w++|[$#&@~+=<>§€£-])"
)
# An end without a doubt, in the scripts that have marks of their own.
CERTAIN = re.compile(
    rf"[{_ALWAYS}](?<![{_ALWAYS}]{{2}})[{_ALWAYS}.!?…]*+(?:\s[{_TIBETAN}]++)*+[{CLOSING}]*+\s*+(?=\S)"
    rf"|(?:[{_BEFORE_SPACE}](?<![{_BEFORE_SPACE}]{{2}})[{_BEFORE_SPACE}]*+|{_TYPED_FOR_MARK})[{CLOSING}.!?…]*+\s++(?=\S)"
)
HAS_CERTAIN = re.compile(rf"[{_ALWAYS}{_BEFORE_SPACE}\u0386-\u03ff\u1f00-\u1fff\u0531-\u0587]")


# Headings: told from sentences, joined to what follows them, or left out.

Headings = Literal["stay", "joined", "dropped"]
SplitText = tuple[str, list[str]]
"""A paragraph and its sentences."""

_MAX_WORDS = 12
_MAX_WORDS_BEFORE_PERIOD = 6
_ENDS = re.compile(f"[{SENTENCE_MARKS},]['\"”’»›」』）)\\]}}]*$")
# Thai and Lao have no marks that end a sentence.
_WITHOUT_MARKS = re.compile("[\u0e00-\u0eff]")
# WikiExtractor puts a full stop behind each heading. A sentence as short as a heading has a verb, which a rule cannot
# see; what it can see are words of speech, which headings do not have.
_WITH_PERIOD = re.compile(r"[^\W_][^.!?…\"“”«»]*[^\W_)]\.$")
_OF_SPEECH = frozenset(
    {
        *("you", "he", "she", "it", "we", "they", "me", "him", "us", "them", "this", "that", "there", "here"),
        *("is", "are", "was", "were", "be", "am", "has", "have", "had", "do", "does", "did", "said", "went", "came"),
        *("will", "would", "can", "could", "should", "not", "no", "yes"),
    }
)


def is_heading(text: str) -> bool:
    """Return whether a paragraph reads like a heading: a few words without a mark that ends a sentence.

    Up to six words with a full stop are a heading too (WikiExtractor's "External links."), unless one of them is of
    those that make sentences ("He left.") or a number or abbreviation inside has a full stop of its own.

    >>> [is_heading(text) for text in ("Early life", "External links.", "He left.", "It was late", "Who is it?")]
    [True, True, False, False, False]
    """
    words = text.split()
    if not words or len(words) > _MAX_WORDS or "\n" in text or not text[0].isalnum() or text[0].islower():
        return False
    if _WITHOUT_MARKS.match(text):
        return False
    if "I" in words[:-1] or not _OF_SPEECH.isdisjoint(word.lower().rstrip(".") for word in words):
        return False
    if not _ENDS.search(text):
        return True
    return len(words) <= _MAX_WORDS_BEFORE_PERIOD and _WITH_PERIOD.match(text) is not None


def place_headings(paragraphs: list[SplitText], headings: Headings) -> tuple[list[SplitText], tuple[str, ...]]:
    """Join each heading to the sentence that follows it, or leave it out.

    A heading needs something below it: the last paragraph of a document is none. What ends in a mark may be a sentence
    ("Dogs bark."), and is never left out.

    Returns:
        The paragraphs, and the headings that were left out.

    >>> place_headings([("Life", ["Life"]), ("He was born. He died.", ["He was born.", "He died."])], "joined")
    ([('Life He was born. He died.', ['Life He was born.', 'He died.'])], ())
    """
    if headings == "stay":
        return paragraphs, ()
    placed: list[SplitText] = []
    above: list[str] = []
    dropped: list[str] = []
    for index, (text, sentences) in enumerate(paragraphs):
        left_out = headings != "dropped" or not _ENDS.search(text)
        if left_out and index + 1 < len(paragraphs) and is_heading(text):
            (above if headings == "joined" else dropped).append(text)
            continue
        if above:
            text = " ".join((*above, text))
            sentences = [" ".join((*above, sentences[0])), *sentences[1:]]
        placed.append((text, sentences))
        above = []
    return placed, tuple(dropped)
