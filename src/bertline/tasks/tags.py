"""Tagging schemes of files (IOB1, IOB2, IOBES and its equivalents BILOU and BMES), and conversion to IOB2."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

Scheme = Literal["iob1", "iob2", "iobes"]

OUTSIDE = "O"
_LETTERS: dict[Scheme, str] = {"iob1": "IB", "iob2": "IB", "iobes": "BIESLUMW"}
# BILOU calls the end of an entity L (last) and an entity of one word U (unit); BMES calls the inside M (middle), and
# BMEWO one word W (whole).
_SAME_AS = {"L": "E", "U": "S", "M": "I", "W": "S"}
TAG = re.compile(rf"[{_LETTERS['iobes']}]-\S+|{OUTSIDE}")
"""A tag of any scheme."""


@dataclass(frozen=True, slots=True)
class BrokenTag:
    """A tag that its neighbours do not allow."""

    index: int
    """Index of the word in its sentence."""
    problem: str
    """Description of the problem, such as `I-person follows O`."""


def to_iob2(tags: Sequence[str], scheme: Scheme) -> tuple[list[str], list[BrokenTag]]:
    """Convert the tags of one sentence to IOB2: B- on the first word of every entity, I- on the others.

    Broken tags get their most likely meaning: an I- or E- that continues no entity begins one, and an unclosed entity
    of IOBES ends before the next tag that does not continue it. IOB1 has no broken order, because there an I- that
    continues no entity begins one.

    Returns:
        The converted tags, one per input tag, and the broken tags in order.

    Raises:
        ValueError: A tag is not in the scheme. The message names the tag and the tags of the scheme.

    Example:
        >>> to_iob2(["I-PER", "I-PER", "B-PER", "O"], "iob1")
        (['B-PER', 'I-PER', 'B-PER', 'O'], [])
        >>> to_iob2(["S-LOC", "B-PER", "E-PER"], "iobes")
        (['B-LOC', 'B-PER', 'I-PER'], [])
        >>> to_iob2(["O", "I-PER"], "iob2")
        (['O', 'B-PER'], [BrokenTag(index=1, problem='I-PER follows O')])
    """
    repaired: list[str] = []
    broken: list[BrokenTag] = []
    open_type: str | None = None  # of the entity that the next word may continue
    for index, tag in enumerate(tags):
        letter, kind = _parsed(tag, scheme)
        continues = letter in ("I", "E") and kind == open_type
        before = tags[index - 1] if index else None
        if scheme == "iobes" and open_type is not None and not continues:
            broken.append(BrokenTag(index - 1, f"{before} is not closed by E-{open_type}"))
        if letter in ("I", "E") and not continues and scheme != "iob1":
            place = f"follows {before}" if before is not None else "begins the sentence"
            broken.append(BrokenTag(index, f"{tag} {place}"))
        if letter == OUTSIDE:
            repaired.append(OUTSIDE)
        else:
            repaired.append(f"{'I' if continues else 'B'}-{kind}")
        open_type = kind if letter in ("B", "I") else None
    if scheme == "iobes" and open_type is not None:
        broken.append(BrokenTag(len(tags) - 1, f"{tags[-1]} is not closed by E-{open_type}"))
    return repaired, broken


def scheme_of(tags: Iterable[str]) -> Scheme:
    """Return the scheme of a file's tags in order, with O between sentences.

    Example:
        >>> scheme_of(["B-PER", "L-PER", "O"]), scheme_of(["O", "I-PER"]), scheme_of(["B-PER", "I-PER"])
        ('iobes', 'iob1', 'iob2')
    """
    tags = [OUTSIDE, *tags]
    if any(TAG.fullmatch(tag) and tag[0] not in OUTSIDE + _LETTERS["iob2"] for tag in tags):
        return "iobes"
    # In IOB1 an entity begins with I- unless an entity of the same type directly precedes it.
    return "iob1" if any(tag[:2] == "I-" and before == OUTSIDE for before, tag in pairwise(tags)) else "iob2"


def iob2_labels(types: Iterable[str]) -> tuple[str, ...]:
    """Return the labels of a tagger: O, then B- and I- of each type in alphabetical order.

    Example:
        >>> iob2_labels({"PER", "LOC"})
        ('O', 'B-LOC', 'I-LOC', 'B-PER', 'I-PER')
    """
    return (OUTSIDE, *(f"{letter}-{kind}" for kind in sorted(set(types)) for letter in "BI"))


def types_of(labels: Iterable[str]) -> tuple[str, ...]:
    """Return the entity types among labels or tags, sorted.

    Example:
        >>> types_of(["O", "B-LOC", "I-LOC", "B-creative-work"])
        ('LOC', 'creative-work')
    """
    return tuple(sorted({label.partition("-")[2] for label in labels if label != OUTSIDE}))


def _parsed(tag: str, scheme: Scheme) -> tuple[str, str | None]:
    """Split a tag into its letter (B, I, E, S or O) and its type."""
    if tag == OUTSIDE:
        return OUTSIDE, None
    letter, dash, kind = tag.partition("-")
    if letter not in tuple(_LETTERS[scheme]) or not dash or not kind:
        allowed = ", ".join(f"{letter}-TYPE" for letter in _LETTERS[scheme])
        raise ValueError(f"the tag is {tag!r}; {scheme} has O, {allowed}")
    return _SAME_AS.get(letter, letter), kind
