"""Metrics of extracted answers, with the rules of SQuAD's official evaluation script, version 2.0.

References: Rajpurkar et al. 2016, arXiv 1606.05250, section 5 (exact match and F1); Rajpurkar et al. 2018, arXiv
1806.03822, section 5 (questions without an answer).
"""

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(answer: str) -> str:
    """Lower-case an answer, remove ASCII punctuation and English articles, and collapse white space.

    >>> normalised("The  Denver-Broncos!")
    'denverbroncos'
    """
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_NO_PUNCTUATION)).split())


def answer_scores(predicted: str, gold: Sequence[str]) -> tuple[float, float]:
    """Return word F1 and exact match of one answer, each the maximum over the gold answers.

    Args:
        predicted: Predicted answer; empty predicts that there is no answer.
        gold: Gold answers; empty if there is no answer, and then only an empty prediction is right.
    """
    right = [text for text in map(normalised, gold) if text] or [""]
    predicted_words = normalised(predicted)
    return max(_f1(predicted_words, text) for text in right), float(predicted_words in right)


def _f1(found: str, right: str) -> float:
    found_words, right_words = found.split(), right.split()
    if not found_words or not right_words:
        return float(found_words == right_words)
    common = sum((Counter(found_words) & Counter(right_words)).values())
    return 2 * common / (len(found_words) + len(right_words))


def best_no_answer_threshold(
    scores: NDArray[np.floating], has_answer: NDArray[np.bool_], no_answer_scores: NDArray[np.floating]
) -> float:
    """Find the no-answer threshold with the highest mean score. A no-answer score above it predicts "no answer".

    Args:
        scores: [N] scores of the best non-empty answers, from `answer_scores`.
        has_answer: [N] whether the question has an answer.
        no_answer_scores: [N] no-answer scores; higher means more confident that there is no answer.

    Returns:
        One of the `no_answer_scores` (the smallest of equally good ones), or, if never answering is best, a number
        below all of them.

    Notes:
        This is the search of the official script with three errors fixed: the script may answer only some of the
        questions with equal no-answer scores; if never answering is best it returns 0, which is right only for
        probabilities; and for a question without answer it treats an answer that is empty after normalisation as wrong,
        although it scores it as right.
    """
    # Answering one more question gains the answer's score, and loses one point if the question has no answer.
    values, places = np.unique(no_answer_scores, return_inverse=True)
    gains = np.bincount(places, weights=scores - ~has_answer, minlength=len(values)).cumsum()
    best = int(gains.argmax())
    return float(values[best]) if gains[best] > 0 else float(values[0]) - 1.0
