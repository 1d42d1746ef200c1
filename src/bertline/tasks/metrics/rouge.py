"""ROUGE of a summary, as in the package rouge-score without stemming (a test compares both).

Reference: Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries", sections 2 (ROUGE-N) and 3.1 (ROUGE-L).
"""

import re
from collections import Counter
from collections.abc import Sequence

Words = Sequence[str]

_WORD = re.compile(r"[a-z0-9]+")


def rouge_words(text: str) -> list[str]:
    """Split a text into lower-cased runs of the letters a to z and digits.

    ROUGE ignores all other characters: text in other scripts has no words, and an accented letter separates words.

    >>> rouge_words("Don't panic: 42!")
    ['don', 't', 'panic', '42']
    """
    return _WORD.findall(text.lower())


def rouge(summary: str, gold: str) -> dict[str, float]:
    """Return F1 of unigrams, bigrams and the longest common subsequence, each in [0, 1]."""
    predicted_words, right = rouge_words(summary), rouge_words(gold)
    return {
        "rouge1": overlap_f1(ngrams(predicted_words, 1), ngrams(right, 1)),
        "rouge2": overlap_f1(ngrams(predicted_words, 2), ngrams(right, 2)),
        "rougeL": _f1(_longest_common(predicted_words, right), len(predicted_words), len(right)),
    }


def ngrams(words: Words, n: int) -> Counter[tuple[str, ...]]:
    """Count the n-grams of words."""
    return Counter(zip(*(words[start:] for start in range(n)), strict=False))


def overlap_f1(found: Counter[tuple[str, ...]], right: Counter[tuple[str, ...]]) -> float:
    """Return ROUGE-N F1 of n-gram counts; a repeated n-gram counts as often as both sides have it."""
    return _f1((found & right).total(), found.total(), right.total())


def _f1(common: int, num_found: int, num_right: int) -> float:
    return 2 * common / (num_found + num_right) if common else 0.0


def _longest_common(one: Words, other: Words) -> int:
    """Return the length of the longest common subsequence, with each row of the usual table as the bits of an integer.

    Reference: Hyyrö 2004, "Bit-parallel LCS-length computation revisited", section 3.
    """
    places: dict[str, int] = {}
    for place, word in enumerate(one):
        places[word] = places.get(word, 0) | 1 << place
    full = (1 << len(one)) - 1
    row = full
    for word in other:
        matches = row & places.get(word, 0)
        row = ((row + matches) | (row - matches)) & full
    return len(one) - row.bit_count()
