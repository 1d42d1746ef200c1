"""Tags of words in the schemes that files use (IOB1, IOB2, IOBES and its twin BILOU), and how they become IOB2."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Scheme = Literal["iob1", "iob2", "iobes"]

OUTSIDE = "O"
_LETTERS: dict[Scheme, str] = {"iob1": "IB", "iob2": "IB", "iobes": "BIESLU"}
# BILOU calls the end of an entity L (last) and an entity of one word U (unit).
_SAME_AS = {"L": "E", "U": "S"}


@dataclass(frozen=True, slots=True)
class BrokenTag:
    """A tag that its neighbours do not allow."""

    index: int
    """Of the word in its sentence."""
    problem: str
    """What is wrong with it: `I-person follows O`."""


def to_iob2(tags: Sequence[str], scheme: Scheme) -> tuple[list[str], list[BrokenTag]]:
    """Write the tags of one sentence as IOB2: B- on the first word of every entity, I- on the others.

    What is broken is read as it most likely was meant: an I- or E- that continues nothing begins an entity, and an
    entity of IOBES that is not closed ends where the next tag shows it. IOB1 has no broken order: there an I- begins
    an entity wherever it continues none.

    Returns:
        As many tags as came in, and the broken ones in order.

    Raises:
        ValueError: A tag that the scheme does not have; the message says which, and what the scheme has.

    Example:
        >>> to_iob2(["I-PER", "I-PER", "B-PER", "O"], "iob1")
        (['B-PER', 'I-PER', 'B-PER', 'O'], [])
        >>> to_iob2(["S-LOC", "B-PER", "E-PER"], "iobes")
        (['B-LOC', 'B-PER', 'I-PER'], [])
        >>> to_iob2(["O", "I-PER"], "iob2")
        (['O', 'B-PER'], [BrokenTag(index=1, problem='I-PER follows O')])
    """
    found: list[str] = []
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
            found.append(OUTSIDE)
        else:
            found.append(f"{'I' if continues else 'B'}-{kind}")
        open_type = kind if letter in ("B", "I") else None
    if scheme == "iobes" and open_type is not None:
        broken.append(BrokenTag(len(tags) - 1, f"{tags[-1]} is not closed by E-{open_type}"))
    return found, broken


def iob2_labels(types: Iterable[str]) -> tuple[str, ...]:
    """The labels of a tagger: O, then B- and I- of each type in the order of the alphabet.

    Example:
        >>> iob2_labels({"PER", "LOC"})
        ('O', 'B-LOC', 'I-LOC', 'B-PER', 'I-PER')
    """
    return (OUTSIDE, *(f"{letter}-{kind}" for kind in sorted(set(types)) for letter in "BI"))


def types_of(labels: Iterable[str]) -> tuple[str, ...]:
    """The types of entities among labels or tags, in the order of the alphabet.

    Example:
        >>> types_of(["O", "B-LOC", "I-LOC", "B-creative-work"])
        ('LOC', 'creative-work')
    """
    return tuple(sorted({label.partition("-")[2] for label in labels if label != OUTSIDE}))


def _parsed(tag: str, scheme: Scheme) -> tuple[str, str | None]:
    """Letter and type; B, I, E, S or O."""
    if tag == OUTSIDE:
        return OUTSIDE, None
    letter, dash, kind = tag.partition("-")
    if letter not in tuple(_LETTERS[scheme]) or not dash or not kind:
        allowed = ", ".join(f"{letter}-TYPE" for letter in _LETTERS[scheme])
        raise ValueError(f"the tag is {tag!r}; {scheme} has O, {allowed}")
    return _SAME_AS.get(letter, letter), kind
