"""TF-IDF features of passages and pairs: what the linear baselines read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer

from bertline.tasks.stored_rows import MultiLabelRows, NumberRows, TextRows

TextsRows = TextRows | MultiLabelRows | NumberRows


class TfidfFeatures:
    """TF-IDF of words and word pairs, fitted on train; of a pair, each text has its own words.

    Args:
        train: The rows to fit on.
    """

    def __init__(self, train: TextsRows) -> None:
        self._by_column = [_fitted(texts) for texts in _columns(train)]

    def __call__(self, rows: TextsRows) -> csr_matrix:
        """[N, words]; the columns of the second texts after those of the first."""
        return hstack([v.transform(texts) for v, texts in zip(self._by_column, _columns(rows), strict=True)]).tocsr()


class TfidfCosine:
    """How alike the two texts of a pair are: the cosine of their TF-IDF vectors of words, over one vocabulary.

    Args:
        train: The rows to fit on, with pairs.
    """

    def __init__(self, train: TextsRows) -> None:
        # Word pairs are rarely shared, and only water the measure down.
        self._vectorizer = _fitted([text for texts in _columns(train) for text in texts], longest=1)

    def __call__(self, rows: TextsRows) -> NDArray[np.float64]:
        """[N], 0 to 1."""
        first, second = (self._vectorizer.transform(texts) for texts in _columns(rows))
        # The rows of TF-IDF have length 1.
        return np.asarray(first.multiply(second).sum(axis=1)).ravel()


def _columns(rows: TextsRows) -> list[list[str]]:
    return [rows.texts] if rows.text_pairs is None else [rows.texts, rows.text_pairs]


def _fitted(texts: list[str], *, longest: int = 2) -> TfidfVectorizer:
    # \w+ keeps words of one letter; identifiers are cut at underscores and dots, as the encoder's tokenizer does.
    words = TfidfVectorizer(ngram_range=(1, longest), sublinear_tf=True, token_pattern=r"[^\W_]+")
    try:
        return words.fit(texts)
    except ValueError:
        # No letter and no digit in any text (marks, emoji): then the characters are the words.
        return TfidfVectorizer(analyzer="char", ngram_range=(1, longest), sublinear_tf=True).fit(
            [f"{text} " for text in texts]
        )
