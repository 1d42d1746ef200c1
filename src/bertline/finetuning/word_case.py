"""The case of words as marks of their tokens (`token_marks`), for encoders whose tokenizer lower-cases.

References:
    Collobert et al., "Natural Language Processing (Almost) from Scratch", JMLR 12, 2011 (arXiv 1103.0398): its
    networks read lower-cased words and, as a feature of its own, their capitalisation in these four classes.
"""

from __future__ import annotations

LOWER, INITIAL, UPPER, MIXED = range(4)
"""Marks: no capital; the first character and no other; all letters, two at least; any other word with capitals."""
NUM_MARKS = 3


def case_of(word: str) -> int:
    """The mark of a word.

    >>> [case_of(word) for word in ("n_jobs", "If", "X", "NaN", "URL", "3D", "_X", "A1", "été", "数据")]
    [0, 1, 1, 3, 2, 3, 3, 1, 0, 0]
    """
    if word == word.lower():
        return LOWER
    if word[0].isupper() and word[1:] == word[1:].lower():
        return INITIAL
    return UPPER if word.isupper() and sum(map(str.isalpha, word)) > 1 else MIXED
