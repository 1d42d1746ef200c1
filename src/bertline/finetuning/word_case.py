"""Token marks (`token_marks`) for the case of words, for encoders whose tokenizer lower-cases.

References:
    Collobert et al., "Natural Language Processing (Almost) from Scratch", JMLR 12, 2011 (arXiv 1103.0398): its
    networks read lower-cased words and, as a separate feature, their capitalisation in these four classes.
"""

from __future__ import annotations

LOWER, INITIAL, UPPER, MIXED = range(4)
"""Marks: no capital; only the first character is a capital; all letters (at least two) are capitals; any other mix."""
NUM_MARKS = 3


def case_of(word: str) -> int:
    """Return the mark of a word.

    >>> [case_of(word) for word in ("n_jobs", "If", "X", "NaN", "URL", "3D", "_X", "A1", "été", "数据")]
    [0, 1, 1, 3, 2, 3, 3, 1, 0, 0]
    """
    if word == word.lower():
        return LOWER
    if word[0].isupper() and word[1:] == word[1:].lower():
        return INITIAL
    return UPPER if word.isupper() and sum(map(str.isalpha, word)) > 1 else MIXED
