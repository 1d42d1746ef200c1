"""Scores of extracted answers, by the rules of SQuAD's official evaluation script, version 2.0.

References:
    Rajpurkar et al. 2016, arXiv 1606.05250, section 5 (exact match and F1); Rajpurkar et al. 2018, arXiv 1806.03822,
    section 5 (questions without an answer).
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(answer: str) -> str:
    """Small letters, no ASCII punctuation, no English articles, single spaces.

    Example:
        >>> normalised("The  Denver-Broncos!")
        'denverbroncos'
    """
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_NO_PUNCTUATION)).split())


def answer_scores(predicted: str, gold: Sequence[str]) -> tuple[float, float]:
    """F1 over words and exact match of one answer, each the best over all right ones.

    Args:
        predicted: Empty for "there is no answer".
        gold: None where there is no answer: then only saying so is right.

    Example:
        >>> answer_scores("the Broncos", ["Denver Broncos", "Broncos"])
        (1.0, 1.0)
        >>> answer_scores("", [])
        (1.0, 1.0)
    """
    right = [text for text in map(normalised, gold) if text] or [""]
    found = normalised(predicted)
    return max(_f1(found, text) for text in right), float(found in right)


def _f1(found: str, right: str) -> float:
    found_words, right_words = found.split(), right.split()
    if not found_words or not right_words:
        return float(found_words == right_words)
    common = sum((Counter(found_words) & Counter(right_words)).values())
    return 2 * common / (len(found_words) + len(right_words))


def best_no_answer_threshold(
    scores: NDArray[np.floating], has_answer: NDArray[np.bool_], no_answer_scores: NDArray[np.floating]
) -> float:
    """The threshold above which a no-answer score means "no answer", so that the mean score is highest.

    Args:
        scores: [N] of the answers that are given where one is given, by `answer_scores`.
        has_answer: [N] whether the question has an answer.
        no_answer_scores: [N] higher the surer the model is that there is none.

    Returns:
        One of the `no_answer_scores` (the smallest among equally good ones), or, where it is best never to answer, a
        number below all of them.

    Notes:
        The official script's search, with three of its slips mended: it can count on answering some of the questions
        with equal no-answer scores and not the others; where never answering is best it gives 0, which is right for
        probabilities only; and where there is no answer it takes one of which normalising leaves nothing for wrong,
        though it scores it as right.

    Example:
        >>> best_no_answer_threshold(np.array([1.0, 0.0]), np.array([True, False]), np.array([-2.0, 3.0]))
        -2.0
    """
    # Answering one more question gains the answer's score and loses the point of a question that has none.
    values, places = np.unique(no_answer_scores, return_inverse=True)
    gains = np.bincount(places, weights=scores - ~has_answer, minlength=len(values)).cumsum()
    best = int(gains.argmax())
    return float(values[best]) if gains[best] > 0 else float(values[0]) - 1.0
