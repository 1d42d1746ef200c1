"""Entities as tags of words: the words of a text, conversion of other schemes to IOB2, and labels."""

import re
from collections.abc import Iterable, Sequence

import regex

OUTSIDE = "O"
TAG = re.compile(r"[BIESLUMW]-\S+|O")
"""A tag of IOB1, IOB2 or IOBES, or of the same under other letters: BILOU has L and U for E and S, BMES M for I."""

# Word splitting common to tagged corpora: runs of letters and digits, including punctuation inside a word; every other
# punctuation mark is a word. Marks, format characters and skin tones belong to the character before them, which may be
# white space; two regional indicators (a flag), and pictographs behind a zero width joiner, are one character (UAX 29).
_LETTER, _ATTACHED = r"\p{L}\p{N}_", r"\p{M}\p{Cf}\p{Emoji_Modifier}"
WORD = regex.compile(
    rf"""[{_LETTER}][{_LETTER}{_ATTACHED}]*+(?:[-'’.@/&:][{_ATTACHED}]*+[{_LETTER}][{_LETTER}{_ATTACHED}]*+)*+
    |\p{{Regional_Indicator}}{{2}}[{_ATTACHED}]*+
    |\p{{Extended_Pictographic}}[{_ATTACHED}]*+(?:(?<=\u200d)\p{{Extended_Pictographic}}[{_ATTACHED}]*+)*+
    |[^{_LETTER}\s\x1c-\x1f\p{{M}}\p{{Cf}}][{_ATTACHED}]*+""",
    regex.VERBOSE,
)


def to_iob2(tags: Sequence[str]) -> list[str]:
    """Convert the tags of one sentence, which all match `TAG`, to IOB2: B- on the first word of every entity, else I-.

    One rule reads every scheme: B, S, U and W begin an entity; the other letters continue one of their type that has
    not ended (by E, S, L, U or W), or begin one. So an I- in a wrong place begins an entity, as in seqeval.
    """
    converted: list[str] = []
    open_type = ""  # of the entity that the next word may continue
    for tag in tags:
        letter, _, kind = tag.partition("-")
        continues = letter in "IMEL" and kind == open_type
        converted.append(f"{'I' if continues else 'B'}-{kind}" if kind else OUTSIDE)
        open_type = kind if letter in "BIM" else ""
    return converted


def types_of(labels: Iterable[str]) -> tuple[str, ...]:
    """Return the entity types among labels or tags, sorted."""
    return tuple(sorted({label.partition("-")[2] for label in labels if label != OUTSIDE}))


def entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """Return the entities of one sentence as (type, first word, last word).

    An I- that continues no entity of its type begins one. Tags are B-, I- or O (see `to_iob2`).

    Reference: seqeval 1.2.2, `metrics/sequence_labeling.py`, `get_entities`.
    """
    found: list[tuple[str, int, int]] = []
    for place, tag in enumerate(to_iob2(tags)):
        letter, _, kind = tag.partition("-")
        if letter == "B":
            found.append((kind, place, place))
        elif letter == "I":
            found[-1] = (kind, found[-1][1], place)
    return set(found)
