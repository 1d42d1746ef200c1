"""How paragraphs are split into sentences: what is known of words, lines, and marks that may end a sentence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self


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


@dataclass(frozen=True, kw_only=True, slots=True)
class LinesConfig:
    """Each line is a sentence: for text that another program has split."""

    kind: Literal["lines"]
    learns: ClassVar[bool] = False
    keeps_lines: ClassVar[bool] = True

    def splitter(self, knowledge: Knowledge) -> Self:
        """Return the splitter, which needs no knowledge."""
        return self

    def split(self, paragraph: str) -> list[str]:
        r"""Return the lines of cleaned lines of the source with `\n` between; none is empty.

        >>> LinesConfig(kind="lines").split("It rained. Dr.\nSmith stayed.")
        ['It rained. Dr.', 'Smith stayed.']
        """
        return paragraph.split("\n")


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
# Marks that end a sentence wherever they stand: Devanagari, Ethiopic, Armenian, Burmese, Khmer,
# Tibetan, Mongolian, Santali, Manipuri, Syriac, N'Ko, Chinese (of Unicode's property
# Sentence_Terminal, and the shad of Tibetan).
_ALWAYS = "।॥።፧፨։၊။។៕\u0f0d-\u0f11\u0f14᠃᠉᱾᱿꫰꫱꯫܀܁܂߹。！？｡"
_TIBETAN = "\u0f0d-\u0f11\u0f14"
# Marks that do so before white space: Urdu, Arabic, Greek (U+037E) and typographic ones.
_BEFORE_SPACE = "۔؟⸮\u037e‽⁇⁈⁉"
# After an Armenian letter a colon, and after a Greek one a semicolon, is typed for the mark that
# looks like it.
_TYPED_FOR_MARK = r"(?<=[\u0531-\u0587]):|(?<=[\u0370-\u03ff\u1f00-\u1fff]);"
# A full stop, exclamation or question mark before white space: marks, closing, opening, next (a
# word or a sign). Quantifiers are possessive, and a run of marks matches from its first one only: a
# long row would take quadratic time. The set stands first, because `re` looks for a set much faster
# than for what a lookbehind allows.
STOP = re.compile(
    rf"([.!?…](?<![.!?…]{{2}})[.!?…]*+)([{CLOSING}]*+)\s++([{re.escape(OPENING)}]*+)(\w++|[$#&@~+=<>§€£-])"
)
# An end without a doubt, in the scripts that have marks of their own.
CERTAIN = re.compile(
    rf"[{_ALWAYS}](?<![{_ALWAYS}]{{2}})[{_ALWAYS}.!?…]*+(?:\s[{_TIBETAN}]++)*+[{CLOSING}]*+\s*+(?=\S)"
    rf"|(?:[{_BEFORE_SPACE}](?<![{_BEFORE_SPACE}]{{2}})[{_BEFORE_SPACE}]*+|{_TYPED_FOR_MARK})[{CLOSING}.!?…]*+\s++(?=\S)"
)
HAS_CERTAIN = re.compile(rf"[{_ALWAYS}{_BEFORE_SPACE}\u0386-\u03ff\u1f00-\u1fff\u0531-\u0587]")
