"""Counts of words and full stops in a part of the corpus, and what all of them together say of each word."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import numpy.typing as npt

from bertline.corpus.sentences.known import STARTERS
from bertline.corpus.sentences.marks import OPENING, STOP
from bertline.foundation.stretches import distinct_stretches

MAX_ABBREVIATION = 9
"""Longest abbreviation that can be learned, in characters without its final full stop."""
_SURE_LENGTH = 5  # a lower-case word this long before a full stop is hardly ever an abbreviation
_EDGES = OPENING + ",;:!?…”’»›)]}\"'"
_WORD = re.compile(r"[^\W\d_](?:[^\W_]|\.(?=[^\W\d_]))*")
_MIN_COUNT = 3
_MIN_ATTACHED = 0.6  # share of occurrences that have a full stop
_MIN_DOTTED = 2
_MIN_EVIDENCE = 0.35
_Z = 1.28  # of a normal distribution, 80 % lie within so many standard deviations
_MIN_DIGITS = 0.3  # share of numbers among the followers of "no." and the like
_MAX_BEFORE_NUMBER = 5  # characters
_MIN_STARTS = 3
_START_SHARE = 0.25  # of the occurrences with a capital, those that surely begin a sentence
_COMMON_WORD = 2
_NUM_SHOWN = 50

MAX_SHORT = 6
"""Longest word, in characters, that is taken for an abbreviation because it was never seen without a full stop."""
NUMBER = "0"
"""Stands for all numbers of one or two digits."""
_MIN_NUMBERS = 20
_MIN_ORDINALS = 0.6  # share of numbers with a full stop before a lower-case word or a name
_LARGE = 1_000_000  # words
FOLLOWERS = ("lower", "digit", "name", "common", "caseless")


@dataclass(slots=True)
class Counts:
    """Counts over a part of the corpus; those of two parts add up to those of both."""

    words: Counter[str] = field(default_factory=Counter)
    """Lower-cased words, as many characters long as an abbreviation may be, without a full stop after them."""
    stopped: dict[str, list[int]] = field(default_factory=dict)
    """Lower-cased words with a full stop: followers by class (`FOLLOWERS`), then those with a further mark."""
    starts: Counter[str] = field(default_factory=Counter)
    """Words with a capital that stand after a sure end of a sentence."""
    capitals: Counter[str] = field(default_factory=Counter)
    """Words with a capital, anywhere."""
    sure: list[int] = field(default_factory=lambda: [0] * len(FOLLOWERS))
    """Followers, by class, of long lower-case words with a full stop."""

    def row(self, word: str) -> list[int]:
        """Return the counts of a word with a full stop, to be changed."""
        return self.stopped.setdefault(word, [0] * (len(FOLLOWERS) + 1))

    def add(self, other: Counts) -> None:
        """Add the counts of another part."""
        self.words.update(other.words)
        self.starts.update(other.starts)
        self.capitals.update(other.capitals)
        for word, row in other.stopped.items():
            mine = self.stopped.get(word)
            self.stopped[word] = row if mine is None else [a + b for a, b in zip(mine, row, strict=True)]
        self.sure = [a + b for a, b in zip(self.sure, other.sure, strict=True)]


def count(*parts: Iterable[str]) -> Counts:
    """Count the words of paragraphs; a pure function, so that parts can be counted anywhere and added up.

    Args:
        parts: Cleaned paragraphs, each on one line. What is a name is decided for each part by its own words.
    """
    counts = Counts()
    texts = [list(part) for part in parts]
    text = " ".join(chain.from_iterable(texts))
    # Text that has not been cleaned: JSON can have lone surrogates.
    numbers, tokens = distinct_stretches(text, errors="replace")
    words = _count_tokens(tokens, np.bincount(numbers).tolist(), counts)
    stop = 0
    starts: defaultdict[str, int] = defaultdict(int)
    for part in texts:
        start, stop = stop, stop + sum(text.count(" ") + 1 for text in part)
        in_part = _WordsOfPart(words, numbers[start:stop])
        kinds: dict[str, int] = {}
        for text in part:
            for match in STOP.finditer(text):
                begin = match.start()
                marks, closing, _, following = match.groups()
                kind = kinds.get(following)
                if kind is None:
                    kind = kinds[following] = _kind(following, in_part)
                left = text[text.rfind(" ", 0, begin) + 1 : begin]
                if _begins_sentence(left.lstrip(_EDGES), marks + closing, kind, counts):
                    starts[following] += 1
    counts.starts.update(starts)
    return counts


def _begins_sentence(word: str, marks: str, kind: int, counts: Counts) -> bool:
    """Count what follows a word with a mark; return whether it is a capital that surely begins a sentence."""
    if not word or (marks[0] == "." and marks != "."):
        return False
    if marks == ".":
        if word.islower() and len(word) >= _SURE_LENGTH and "." not in word:
            counts.sure[kind] += 1
        elif len(word) <= 2 and word.isdecimal():
            counts.row(NUMBER)[kind] += 1
            return False
        elif len(word) <= MAX_ABBREVIATION and _WORD.fullmatch(word):
            counts.row(word.lower())[kind] += 1
            return False
    return FOLLOWERS[kind] in ("name", "common")


@dataclass(frozen=True, slots=True)
class _Words:
    """Words, as they are but for marks around them, of distinct tokens."""

    numbers: dict[str, int]
    """Number of each word that begins with a capital or in lower case, from 1."""
    of_tokens: npt.NDArray[np.int64]
    """[tokens] number of each token's word; 0 if there is none."""


class _WordsOfPart:
    """How often each word occurs in a part."""

    def __init__(self, words: _Words, tokens: npt.NDArray[np.int32]) -> None:
        self._numbers = words.numbers
        self._times = np.bincount(words.of_tokens[tokens], minlength=len(words.numbers) + 1)

    def __getitem__(self, word: str) -> int:
        number = self._numbers.get(word)
        return 0 if number is None else int(self._times[number])


def _count_tokens(tokens: list[str], times: list[int], counts: Counts) -> _Words:
    """Count words with and without full stops, of distinct tokens and their counts."""
    numbers: dict[str, int] = {}
    of_tokens = []
    capitals: defaultdict[str, int] = defaultdict(int)
    words: defaultdict[str, int] = defaultdict(int)
    for token, times_here in zip(tokens, times, strict=True):
        word = token if token.isalpha() else token.strip(_EDGES)  # most are words already
        number = 0
        if word:
            first, stopped = word[0], word[-1] == "."
            is_capital = first.isupper()
            if is_capital or first.islower():
                bare = word.rstrip(".") if stopped else word
                number = numbers.setdefault(bare, len(numbers) + 1)
                if is_capital:
                    capitals[bare] += times_here
            if len(word) <= MAX_ABBREVIATION:
                if not stopped:
                    words[word.lower()] += times_here
                elif token[-1] in ",;:" and word[-2:-1].isalpha():
                    counts.row(word[:-1].lower())[-1] += times_here
        of_tokens.append(number)
    counts.capitals.update(capitals)
    counts.words.update(words)
    return _Words(numbers, np.array(of_tokens, dtype=np.int64))


def _kind(following: str, words: _WordsOfPart) -> int:
    """Return the class of a word as an index of `FOLLOWERS`; a name is hardly ever lower-case in this part."""
    first = following[0]
    if first.islower():
        return 0
    if first.isdigit():
        return 1
    if not first.isupper():
        return 4
    if following in STARTERS:
        return 3
    lowered = following.lower()  # without a lower case it stays a capital, which is not counted for one
    return 3 if (words[lowered] if lowered[0].islower() else 0) >= words[following] else 2


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


def learn(counts: Counts) -> Knowledge:
    """Decide from the counts of the whole corpus which words are abbreviations and which begin sentences.

    A word is an abbreviation if it hardly occurs without a full stop and what follows is mostly no beginning of a
    sentence: a lower-case word, a number, a further mark, or a name (a capital that is hardly ever lower-case here).

    References:
        Kiss and Strunk, Unsupervised Multilingual Sentence Boundary Detection, 2006, sections 3 and 4: the same
        evidence (attachment of the full stop, length, following case, frequent sentence starters).
    """
    # After sure ends of sentences: how often a number or a name follows, which is no evidence there.
    _, digit, name, common, caseless = ((number + 1) / (sum(counts.sure) + 5) for number in counts.sure)
    base = (digit + name) / (digit + name + common + caseless)
    abbreviations: dict[str, int] = {}
    before_numbers: set[str] = set()
    for word, row in counts.stopped.items():
        number = sum(row)
        dotted = "." in word
        if len(word) == 1 or number < (_MIN_DOTTED if dotted else _MIN_COUNT):
            continue  # an initial, or too little to say
        lower, digit, name, *_, marked = row
        attached = number / (number + counts.words[word])
        evidence = lower + marked + (digit + name) * (1 - base)
        if attached >= _MIN_ATTACHED and (dotted or _lower_bound(evidence / number, number) >= _MIN_EVIDENCE):
            abbreviations[word] = number
        elif digit >= max(_MIN_COUNT, _MIN_DIGITS * number) and len(word) <= _MAX_BEFORE_NUMBER:
            before_numbers.add(word)
    starters = frozenset(
        word
        for word, number in counts.starts.items()
        if number >= _MIN_STARTS and number >= _START_SHARE * counts.capitals[word]
    )
    words = frozenset(w for w, number in counts.words.items() if len(w) <= MAX_SHORT and number >= _COMMON_WORD)
    numbers = counts.stopped.get(NUMBER, [0] * (len(FOLLOWERS) + 1))
    ordinals = sum(numbers) >= _MIN_NUMBERS and numbers[0] + numbers[2] >= _MIN_ORDINALS * sum(numbers)
    return Knowledge(
        abbreviations=frozenset(abbreviations),
        before_numbers=frozenset(before_numbers),
        starters=starters,
        words=words,
        ordinals=ordinals,
        large=sum(counts.words.values()) >= _LARGE,
        frequent=tuple(sorted(abbreviations.items(), key=lambda item: (-item[1], item[0]))[:_NUM_SHOWN]),
    )


def _lower_bound(share: float, number: int) -> float:
    """Return the lower end of the 80 % interval of a share (Wilson 1927)."""
    squared = _Z * _Z
    middle = share + squared / (2 * number)
    spread = _Z * math.sqrt(share * (1 - share) / number + squared / (4 * number * number))
    return (middle - spread) / (1 + squared / number)
