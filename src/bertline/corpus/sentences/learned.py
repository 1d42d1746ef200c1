"""Sentences by what the corpus itself says of its words, without labels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from bertline.corpus.document import SourceDocument
from bertline.corpus.sentences.known import BEFORE_NUMBERS, BEFORE_ORDINALS, LABELS, MONTHS, OPEN, STARTERS, TITLES
from bertline.corpus.sentences.layout import layout_ends
from bertline.corpus.sentences.marks import CERTAIN, HAS_CERTAIN, OPENING, STOP
from bertline.corpus.sentences.splitter import Batches, SentenceSettings
from bertline.corpus.sentences.statistics import MAX_SHORT, Counts, Knowledge, count, learn
from bertline.foundation.parallel import batches, ordered_map
from bertline.foundation.seeds import unit_interval
from bertline.foundation.stretches import with_single_spaces

_ACRONYM = re.compile(r"(?:[^\W\d_]{1,2}\.-?)+[^\W\d_]{1,3}")
_ELISION = re.compile(r"(?:(?:[ldnmstjc]|qu|dell|all|nell|sull|un)['’]+)+", re.IGNORECASE)
_LAST_WORD = re.compile(r"[^\W\d_]+(?:\.[^\W\d_]+)*$")
_ARTICLE = re.compile(r"[A-Z]\.? \d")  # "art. L. 121-3"
_NUMBERED = frozenset({"No", "Nos", "Art", "Nr", "Sec"})
_VOWELS = frozenset("aeiouyäöüáéíóúýàèìòùâêîôûãõåæøœаеёиоуыэюяіїєαεηιουωάέήίόύώ")
_MAX_UNKNOWN = 4
_MAX_BEFORE = 40  # characters looked at before a full stop
_ALL_BATCHES = 100
_COUNTED_TOGETHER = 32
"""Batches that are counted at once, as words come again and again; divided among the workers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnedConfig(SentenceSettings):
    """Abbreviations and beginnings of sentences are learned from the corpus itself, in any language."""

    kind: Literal["learned"]
    abbreviations: tuple[str, ...]
    """Abbreviations of your own, with or without their full stop: none of them ends a sentence."""

    def __post_init__(self) -> None:
        for abbreviation in self.abbreviations:
            if not abbreviation.strip(".") or any(character.isspace() for character in abbreviation):
                raise ValueError(
                    f"abbreviations must be single words, found {abbreviation!r}; write the words of a longer one as "
                    "entries of their own"
                )

    def splitter(self, read: Batches, *, num_workers: int) -> LearnedSplitter:
        """Read the corpus once, count words and full stops, and make the splitter.

        The first 50 million characters are counted, and of what follows a sample over the whole corpus that grows with
        the logarithm of its size.
        """
        counts = Counts()
        most = max(1, _COUNTED_TOGETHER // max(1, num_workers))
        several = batches(_sample(read()), size=lambda _: 1, most=most)
        for part in ordered_map(count_batches, several, num_workers=num_workers):
            counts.add(part)
        return LearnedSplitter.of(learn(counts), self.abbreviations)


def count_batches(several: list[list[SourceDocument]]) -> Counts:
    """Count the words and full stops of several batches; a pure function of these."""
    return count(*map(_paragraphs, several))


def _paragraphs(batch: list[SourceDocument]) -> Iterator[str]:
    return (with_single_spaces(paragraph) for document in batch for paragraph in document.paragraphs)


def _sample(read: Iterable[list[SourceDocument]]) -> Iterator[list[SourceDocument]]:
    for index, batch in enumerate(read):
        if index < _ALL_BATCHES or unit_interval(0, "sentences", str(index)) < _ALL_BATCHES / index:
            yield batch


@dataclass(frozen=True, slots=True)
class LearnedSplitter:
    """Splits at full stops that belong to no abbreviation, initial or ordinal, and at the other marks."""

    never: frozenset[str]
    """Lower-cased words, without their full stop, after which a sentence goes on."""
    before_numbers: frozenset[str]
    """The same, before a number or a month alone."""
    open: frozenset[str]
    """Abbreviations after which a word that often begins a sentence begins one."""
    starters: frozenset[str]
    """Words, with their capital, that often begin a sentence."""
    words: frozenset[str]
    """Short lower-cased words that are no abbreviations."""
    knowledge: Knowledge
    keeps_lines: ClassVar[bool] = False

    @classmethod
    def of(cls, knowledge: Knowledge, abbreviations: Iterable[str] = ()) -> LearnedSplitter:
        """Join what was learned with what is known before and with a user's abbreviations, which win."""
        own = frozenset(abbreviation.lower().removesuffix(".") for abbreviation in abbreviations)
        never = TITLES | own
        return cls(
            never,
            BEFORE_NUMBERS | knowledge.before_numbers,
            (OPEN | knowledge.abbreviations) - never,
            STARTERS | knowledge.starters,
            knowledge.words,
            knowledge,
        )

    def learned(self) -> dict[str, Any]:
        """Return how many abbreviations were learned, with the most frequent ones to read."""
        return {
            "abbreviations": len(self.knowledge.abbreviations),
            "before_numbers": len(self.knowledge.before_numbers),
            "starters": len(self.knowledge.starters),
            "most_frequent_abbreviations": {f"{word}.": number for word, number in self.knowledge.frequent},
        }

    def split(self, paragraph: str) -> list[str]:
        """Split one paragraph into sentences.

        Example:
            >>> splitter = LearnedSplitter.of(learn(count([])))
            >>> splitter.split("See 10 U.S.C. Sec. 7730. It was amended by Pub. L. 110-246. Roe v. Harris followed.")
            ['See 10 U.S.C. Sec. 7730.', 'It was amended by Pub. L. 110-246.', 'Roe v. Harris followed.']
        """
        ends = []
        start = 0
        stop_ends, find_space = self._stop_ends, paragraph.rfind
        for match in STOP.finditer(paragraph):
            marks, closing, opening, following = match.groups()
            at = match.start()
            if marks == "." and not closing:
                begin = find_space(" ", start, at) + 1 or start
                if not stop_ends(paragraph, start, begin, at, following):
                    continue
            elif following[0].islower() and (
                not _ends_before_lower(marks, closing, opening)
                or (marks == "." and self._is_known(paragraph, start, at))
            ):
                continue
            start = match.end() - len(following) - len(opening)
            ends.append(start)
        more = layout_ends(paragraph)
        if not paragraph.isascii() and HAS_CERTAIN.search(paragraph):
            more += [match.end() for match in CERTAIN.finditer(paragraph)]
        if more:
            ends = sorted({*ends, *more})
        sentences = []
        start = 0
        for end in ends:
            sentences.append(paragraph[start:end].strip())
            start = end
        sentences.append(paragraph[start:].strip())
        return [sentence for sentence in sentences if sentence]

    def _stop_ends(self, text: str, start: int, begin: int, at: int, following: str) -> bool:
        """Return whether the full stop at `at`, behind the word that begins at `begin`, ends a sentence."""
        word = text[begin:at].lstrip(OPENING)
        lowered = word.lower()
        if lowered in self.never:
            return False
        first = following[0]
        if first == "&":
            return False  # "Sav. & Loan"
        if ("'" in word or "’" in word) and (elided := _ELISION.match(word)):
            return self._stop_ends(text, start, begin + text[begin:at].index(word) + elided.end(), at, following)
        if lowered in self.open:
            return following in self.starters
        if lowered in self.before_numbers and (
            first.isdigit() or following in MONTHS or _ARTICLE.match(text, at + 2) is not None
        ):
            return False
        length = len(word)
        if word.isdecimal():
            return self._number_ends(text, start, begin, at, following)
        if length > _MAX_UNKNOWN:
            return self._word_ends(text, start, begin, at, following)
        if length == 1:
            # "d. A." are two initials; "x. A dog" is not.
            several = len(following) == 1 and text.startswith(".", at + 2 + len(following))
            return not several and self._letter_ends(word, following, alone=start == begin)
        if lowered in self.words:
            return True
        if "." in word and _ACRONYM.fullmatch(word):
            return following in self.starters
        if self._is_one_of_several(text, start, begin, at, following):
            return False
        if word.isalpha():
            # Of an abbreviation that was never met: it goes on in lower case, or has no vowel ("Mgr.", "hl.").
            if first.islower() or first == "§":
                return False
            if not word.isupper() and lowered.isascii() and _VOWELS.isdisjoint(lowered):
                return following in self.starters
        return following in self.starters or not self._never_without_stop(word, lowered)

    def _word_ends(self, text: str, start: int, begin: int, at: int, following: str) -> bool:
        word = text[begin:at].lstrip(OPENING)
        lowered = word.lower()
        if "." in word:
            return not _ACRONYM.fullmatch(word) or following in self.starters
        if following[0] == "§" or (following[0].isdigit() and lowered.endswith("str")):
            return False  # "Treas. Reg. § 1", "Hauptstr. 5"
        return following in self.starters or not (
            self._never_without_stop(word, lowered) or self._is_one_of_several(text, start, begin, at, following)
        )

    def _is_known(self, text: str, start: int, at: int) -> bool:
        """Return whether a known abbreviation ends at `at`: "(R-Tex.) voted"."""
        word = _LAST_WORD.search(text, max(start, at - _MAX_BEFORE), at)
        return word is not None and (len(word[0]) == 1 or word[0].lower() in self.never or word[0].lower() in self.open)

    def _is_one_of_several(self, text: str, start: int, begin: int, at: int, following: str) -> bool:
        """Return whether a short word with a capital is the first of several abbreviations, or would stand alone."""
        word = text[begin:at]
        if len(word) > MAX_SHORT or not word.istitle():
            return False
        after = at + 2 + len(following)
        if following in _NUMBERED and text[after : after + 2] == ". " and text[after + 2 : after + 3].isdecimal():
            return True  # "Ex. Ord. No. 12148"
        if following in self.starters or following[0].islower():
            return False
        near = max(start, at - _MAX_BEFORE)
        if following[0].isdecimal() or text.rfind("(", near, at) > text.rfind(")", near, at):
            return True  # "Oral Arg. 14"; "(Pa. Super. Ct. 2011)"
        if begin == start and word.lower() not in self.words and word not in self.starters:
            return True  # "Sog. Altfälle": a sentence of one word that was never met
        return len(following) <= _MAX_UNKNOWN and text.startswith(f" {following}. ", at + 1)  # "Sup. Ct. of"

    def _never_without_stop(self, word: str, lowered: str) -> bool:
        """Return whether a large corpus has a short word with a capital only with a full stop: "Treas. Reg."."""
        return self.knowledge.large and len(word) <= MAX_SHORT and word.istitle() and lowered not in self.words

    def _number_ends(self, text: str, start: int, begin: int, at: int, following: str) -> bool:
        before = text[max(start, begin - _MAX_BEFORE) : begin].lower().split()
        if not before or (len(before) == 1 and before[0] in LABELS):
            return False  # "1. Install it", "Sec. 12. Definitions"
        if at - begin > 2:
            return True
        if following[0].islower() or before[-1][-1] in ":*" or following in MONTHS:
            return False
        if following.isdecimal() and (before[-1][:-1].isdecimal() or text.startswith(f" {following}.", at + 1)):
            return False  # "am 5. 6. 2012"
        ordinal = self.knowledge.ordinals or before[-1] in BEFORE_ORDINALS or before[-1][-1] == ","
        return not ordinal or following in self.starters

    def _letter_ends(self, letter: str, following: str, *, alone: bool) -> bool:
        if not letter.isalpha():
            return True
        if letter == "I":
            return not following[0].islower()
        # An initial ("J. Smith"), or the letter of a list ("a. Install it").
        return following in self.starters and not alone


def _ends_before_lower(marks: str, closing: str, opening: str) -> bool:
    """Return whether other marks than a full stop alone end a sentence before a word in lower case."""
    if closing:
        return marks == "." and closing in (")", "]")  # not: "What!" he cried
    return marks[0] in "!?" or opening in ("(", "[")
