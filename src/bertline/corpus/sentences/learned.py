"""Sentences by what the corpus itself says of its words, without labels."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from bertline.corpus.document import distinct_stretches
from bertline.corpus.sentences.splitter import CERTAIN, HAS_CERTAIN, OPENING, STOP, Knowledge, cut_at
from bertline.foundation.seeds import unit_interval

# Words that are known before any text is read: abbreviations of several languages, and beginnings
# of sentences.


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Before a name, a number or an explanation: the sentence goes on, whatever the case of the next
# word.
BEFORE_NAMES = _words("""
    sog inkl exkl beschl entsch subsec subsecs subpara subpart rn rdnr rz hs lit jur vorauss
    mr mrs ms messrs mx mme mlle mgr dr drs prof rev hon st ste sra srta fr amb gen col maj capt lt sgt cpl adm
    cmdr gov sen rep pres supt insp det atty fmr mt ft hrn dipl sig sigg sigra dott avv dña lic p.s attn vol
    vols pp fig figs eq eqs eqn eqns sec secs ch chap thm prop eds ref refs vs cf e.g i.e eg ie viz approx ca
    resp cit ibid esp incl al pl pub fed civ crim evid supp cir v vgl ggf evtl zzgl abs nr str bd hrsg z.b d.h
    u.a v.a i.d.r z.t exec treas bankr urt az gem fa bzgl inh mem educ s.o o.ä p.ex c.-à-d para paras subd subds
    cl sched pars subpar subpars subds cls regs arts ord cong admin arg concl anc circ bekl kl bgbl rgbl abl gvbl bstbl
    anl halbs buchst bl sachverst dép arr décr réf св им ул ред стр рис см напр акад проф г.г""")
# Only before a number or a month: "No. 5", "Jan. 1", "p. 12", but "He said no. She left."
BEFORE_NUMBERS = _words("""
    no nos p par str art arts tab c stat reg app ex op n r § §§ ed s ct g jan feb mar apr jun jul aug sep sept
    oct nov dec janv févr avr juill juil déc jän febr mär okt dez abr ago dic eff
    mind max min anm ziff kap mon tue tues wed thu thur thurs fri sat sun ext tel mob ph""")
MONTHS = _words("""
    Januar Februar März Mai Juni Juli Oktober Dezember Jänner January February March April May June July August
    September October November December Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec Jän Febr Mär Okt Dez
    janvier février mars avril mai juin juillet août septembre octobre novembre décembre janv févr avr juill déc""")
# May end a sentence: a frequent beginning of one after them ends it.
OPEN = _words("""
    etc inc ltd corp co cos bros dept univ assn assoc jr sr esq ph.d m.d b.a m.a ave blvd rd a.m p.m u.s u.k u.n
    e.u d.c u.s.c u.s.a u.s.s.r n.y l.a c.f.r f.3d f.2d f.supp s.ct l.ed usw u.s.w bzw ca cal mass penn tex fla
    ill conn ariz colo gmbh mio mrd tel min max std dist ex rel ann amend const mich minn wis wash okla tenn ga
    va md kan ky neb nev int'l nat'l dep't gov't ass'n comm'n""")
STARTERS = _words("""
    The This These That Those There It Its In If For When While Where He She We They You His Her Their And But
    Or As At By On To Then Thus Hence However Otherwise Note See Each Every Any All With After Before Since
    Because Although Also Here Not No Use Used Default What Why How Who Which My Our Your Now So Yes Well Please
    Even Some Many Most Such I A An Is Are Was Der Die Das Ein Eine Es Er Sie Wir Ich Dies Diese Dieser Im Am
    Nach Bei Mit Auch Und Aber Doch Le La Les Il Elle Ils Nous Vous Je Un Une Ce Cette El Los Las En Y Pero O Os
    Uma""")
# A number with a full stop is an ordinal between one of these and a word that begins no sentence
# ("der 2. Senat").
BEFORE_ORDINALS = _words("der die das den dem des im vom zum zur beim ins v")
# "Sec. 12. Definitions" is one heading.
LABELS = _words("§ §§ sec. section art. article ch. chapter rule title part no. fig. figure table step abs. artikel")


# Ends of sentences that no mark shows, in letters and on web pages: rows of characters, addresses,
# smileys, times.

# Text without any of these has no such end, which is much faster to see than with the pattern.
_SIGNS = (
    (":", ("://", ":)", ":-)", ":(", ":D")),  # a character is found faster than several
    (";", (";)", ";-)")),
    ("=", ("===", "=)")),
    *((sign[0], (sign,)) for sign in ("***", "___", "~~~", ">>")),
    *((sign, (sign,)) for sign in ("---", "www.", " AM ", " PM ")),
)
_LAYOUT = re.compile(
    r"(?:^|\s)(?=([-*=_~#+])\1{2,}(?:\s|$))"  # before a rule
    r"|(?:---|\*\*\*|===|___|~~~)\s(?![-*=_~])"  # after one
    r"|(?:\s[:;=]-?[)(DP]+)\s(?=[^\W\d_a-z]|\d)"  # after a smiley, before a capital
    r"|(?<=[a-z/])(?<!\b(?:at|to|on|by|in|is|of))\s(?=https?://)"
    r"|(?:https?://|www\.)\S*+(?<=[\w/])\s(?=(?:https?:|www\.|[A-Z]))"
    r"|\s(?=\d\d?/\d\d?/\d{2,4} \d\d:\d\d [AP]M)"
    r"|\d\d:\d\d(?::\d\d)? [AP]M\s(?=[A-Z][a-z])"
    r"|(?:^|(?<=[^\s>]))>>?\s(?=[A-Z<\d])"  # after <ada@example.org>, not in "a > B"
)


def layout_ends(text: str) -> list[int]:
    """Return the places in a paragraph where a sentence begins though no mark ends the one before.

    >>> text = "Look at http://a.org/b We were there :) It rained"
    >>> [text[end:] for end in layout_ends(text)]
    ['We were there :) It rained', 'It rained']
    """
    has_sign = any(first in text and any(sign in text for sign in signs) for first, signs in _SIGNS)
    return [match.end() for match in _LAYOUT.finditer(text)] if has_sign else []


# Counts of words and full stops in a part of the corpus, and what all of them together say of each
# word.

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
class WordCounts:
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

    def add(self, other: WordCounts) -> None:
        """Add the counts of another part."""
        self.words.update(other.words)
        self.starts.update(other.starts)
        self.capitals.update(other.capitals)
        for word, row in other.stopped.items():
            mine = self.stopped.get(word)
            self.stopped[word] = row if mine is None else [a + b for a, b in zip(mine, row, strict=True)]
        self.sure = [a + b for a, b in zip(self.sure, other.sure, strict=True)]


def counts_of_words(*parts: Iterable[str]) -> WordCounts:
    """Count the words of parts of cleaned paragraphs, each on one line: a pure function, whose results add up.

    What is a name is decided for each part by its own words.
    """
    counts = WordCounts()
    texts = [list(part) for part in parts]
    text = " ".join(chain.from_iterable(texts))
    # Text that has not been cleaned: JSON can have lone surrogates.
    numbers, tokens = distinct_stretches(text, errors="replace")
    word_numbers, word_of_token = _count_tokens(tokens, np.bincount(numbers).tolist(), counts)
    stop = 0
    for part in texts:
        start, stop = stop, stop + sum(text.count(" ") + 1 for text in part)
        times = np.bincount(word_of_token[numbers[start:stop]], minlength=len(word_numbers) + 1)
        times[0] = 0  # what is no word
        kinds: dict[str, int] = {}
        for text in part:
            for match in STOP.finditer(text):
                begin = match.start()
                marks, closing, _, following = match.groups()
                if (kind := kinds.get(following)) is None:
                    kind = kinds[following] = _kind(following, word_numbers, times)
                left = text[text.rfind(" ", 0, begin) + 1 : begin]
                if _begins_sentence(left.lstrip(_EDGES), marks + closing, kind, counts):
                    counts.starts[following] += 1
    return counts


def _begins_sentence(word: str, marks: str, kind: int, counts: WordCounts) -> bool:
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


def _count_tokens(
    tokens: list[str], times: list[int], counts: WordCounts
) -> tuple[dict[str, int], npt.NDArray[np.int64]]:
    """Count words with and without full stops, of distinct tokens and their counts.

    Returns:
        A number, from 1, for each word that begins with a letter, and [tokens] those of the tokens, 0 if there is none.
    """
    numbers: dict[str, int] = {}
    of_tokens = []
    capitals, words = counts.capitals, counts.words
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
    return numbers, np.array(of_tokens, dtype=np.int64)


def _kind(following: str, numbers: Mapping[str, int], times: npt.NDArray[np.int64]) -> int:
    """Return the class of a word as an index of `FOLLOWERS`; a name is hardly ever lower-case in this part.

    `times` is how often each word occurs in it, by its number.
    """
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
    times_lowered = times[numbers.get(lowered, 0)] if lowered[0].islower() else 0
    return 3 if times_lowered >= times[numbers.get(following, 0)] else 2


def learn(counts: WordCounts) -> Knowledge:
    """Decide from the counts of the whole corpus which words are abbreviations and which begin sentences.

    A word is an abbreviation if it hardly occurs without a full stop and what follows is mostly no beginning of a
    sentence: a lower-case word, a number, a further mark, or a name (a capital that is hardly ever lower-case here).

    Reference: Kiss and Strunk, Unsupervised Multilingual Sentence Boundary Detection, 2006, sections 3 and 4: the same
    evidence (attachment of the full stop, length, following case, frequent sentence starters).
    """
    # After sure ends of sentences: how often a number or a name follows, which is no evidence
    # there.
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


_ACRONYM = re.compile(r"(?:[^\W\d_]{1,2}\.-?)+[^\W\d_]{1,3}")
_ELISION = re.compile(r"(?:(?:[ldnmstjc]|qu|dell|all|nell|sull|un)['’]+)+", re.IGNORECASE)
_LAST_WORD = re.compile(r"[^\W\d_]+(?:\.[^\W\d_]+)*$")
_ARTICLE = re.compile(r"[A-Z]\.? \d")  # "art. L. 121-3"
_NUMBERED = frozenset({"No", "Nos", "Art", "Nr", "Sec"})
_VOWELS = frozenset("aeiouyäöüáéíóúýàèìòùâêîôûãõåæøœаеёиоуыэюяіїєαεηιουωάέήίόύώ")
_MAX_UNKNOWN = 4
_MAX_BEFORE = 40  # characters looked at before a full stop
_ALL_BATCHES = 100


def sampled_batches(num_batches: Sequence[int]) -> list[list[int]]:
    """Return the batches of each shard that are counted: the first 100, and of what follows a sample over the whole
    corpus that grows with the logarithm of its size.

    >>> [len(batches) for batches in sampled_batches([60, 60, 60])]
    [60, 58, 40]
    """
    chosen, first = [], 0
    for number in num_batches:
        places = range(first, first + number)
        wanted = (place for place in places if place * unit_interval(0, "sentences", str(place)) < _ALL_BATCHES)
        chosen.append([place - first for place in wanted])
        first += number
    return chosen


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnedConfig:
    """Abbreviations and beginnings of sentences are learned from the corpus itself, in any language."""

    learns: ClassVar[bool] = True
    """Whether the words of the corpus are counted first."""
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

    def splitter(self, knowledge: Knowledge) -> LearnedSplitter:
        """Make the splitter."""
        return LearnedSplitter.of(knowledge, self.abbreviations)


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
    knowledge: Knowledge
    keeps_lines: ClassVar[bool] = False

    @classmethod
    def of(cls, knowledge: Knowledge, abbreviations: Iterable[str] = ()) -> LearnedSplitter:
        """Join what was learned with what is known before and with a user's abbreviations, which win."""
        own = frozenset(abbreviation.lower().removesuffix(".") for abbreviation in abbreviations)
        never = BEFORE_NAMES | own
        return cls(
            never,
            BEFORE_NUMBERS | knowledge.before_numbers,
            (OPEN | knowledge.abbreviations) - never,
            STARTERS | knowledge.starters,
            knowledge,
        )

    def split(self, paragraph: str) -> list[str]:
        """Split one paragraph into sentences.

        >>> splitter = LearnedSplitter.of(learn(counts_of_words([])))
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
        return cut_at(paragraph, ends)

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
        if lowered in self.knowledge.words:
            return True
        if "." in word and _ACRONYM.fullmatch(word):
            return following in self.starters
        if self._is_one_of_several(text, start, begin, at, following):
            return False
        if word.isalpha():
            # Of an abbreviation that was never met: it goes on in lower case, or has no vowel
            # ("Mgr.", "hl.").
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
        if begin == start and word.lower() not in self.knowledge.words and word not in self.starters:
            return True  # "Sog. Altfälle": a sentence of one word that was never met
        return len(following) <= _MAX_UNKNOWN and text.startswith(f" {following}. ", at + 1)  # "Sup. Ct. of"

    def _never_without_stop(self, word: str, lowered: str) -> bool:
        """Return whether a large corpus has a short word with a capital only with a full stop: "Treas. Reg."."""
        known = self.knowledge
        return known.large and len(word) <= MAX_SHORT and word.istitle() and lowered not in known.words

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


@cache
def nothing_learned() -> Knowledge:
    """Return what is known of words before any text is read."""
    return learn(WordCounts())


def split_sentences(text: str) -> list[str]:
    """Split a paragraph of cleaned text, on one line, by the abbreviations that are known before any text is read."""
    return _splitter().split(text)


@cache
def _splitter() -> LearnedSplitter:
    return LearnedSplitter.of(nothing_learned())
