"""Features of passages and pairs for the linear baselines: n-grams, and what the two texts of a pair share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.pipeline import make_pipeline

from bertline.tasks.stored_rows import MultiLabelRows, NumberRows, TextRows

TextsRows = TextRows | MultiLabelRows | NumberRows
Unit = Literal["word", "char", "word_and_char"]
UNITS: tuple[Unit, ...] = get_args(Unit)
TITLES: dict[Unit, str] = {
    "word": "word n-grams",
    "char": "character n-grams",
    "word_and_char": "word and character n-grams",
}
_MOST_FEATURES = 500_000  # per column of texts: the n-grams most frequent in train
MOST_CHARACTERS = {"word": 40_000_000, "char": 8_000_000}
"""Maximum number of train characters that are read, a prefix of the shuffled rows: a linear model gains little from
more."""


class NgramFeatures:
    """TF-IDF of n-grams, fitted on train; the two texts of a pair have separate features.

    Args:
        unit: `word`: n-grams of one and two words; `char`: n-grams of 2 to 5 characters inside words, including their
            edges; `word_and_char`: both, each with norm 1.
    """

    def __init__(self, train: TextsRows, unit: Unit) -> None:
        kinds: tuple[Literal["word", "char"], ...] = ("word", "char") if unit == "word_and_char" else (unit,)
        self._fitted = [(number, _fitted(texts, kind)) for number, texts in enumerate(columns(train)) for kind in kinds]

    def __call__(self, rows: TextsRows) -> csr_matrix:
        """Return features [N, n-grams]; the columns of the second texts follow those of the first."""
        texts = columns(rows)
        return hstack([vectorizer.transform(texts[number]) for number, vectorizer in self._fitted]).tocsr()


def columns(rows: TextsRows) -> list[list[str]]:
    """Return the texts of passages as one list; of pairs, the first texts and the second texts."""
    return [rows.texts] if rows.text_pairs is None else [rows.texts, rows.text_pairs]


def num_rows_read(rows: TextsRows, unit: Unit) -> int:
    """Return how many of the first rows of train an n-gram model is fitted on."""
    budget = MOST_CHARACTERS["word" if unit == "word" else "char"]
    for number, texts in enumerate(zip(*columns(rows), strict=True)):
        budget -= sum(map(len, texts))
        if budget < 0 and number > 0:
            return number
    return len(rows)


def _fitted(texts: Sequence[str], unit: Literal["word", "char"]) -> TfidfVectorizer:
    terms: dict[str, Any] = {"ngram_range": (2, 5), "analyzer": "char_wb"}
    if unit == "word":  # of one letter, too; identifiers are split at underscores and dots, as by the tokenizer
        terms = {"ngram_range": (1, 2), "token_pattern": r"[^\W_]+"}
    try:
        return TfidfVectorizer(**terms, sublinear_tf=True, max_features=_MOST_FEATURES).fit(texts)
    except ValueError:
        # No text has a letter or a digit (only punctuation or emoji, or nothing): use characters instead of words.
        characters = TfidfVectorizer(analyzer="char", ngram_range=(1, 2), sublinear_tf=True)
        return characters.fit([f"{text} " for text in texts])


# camelCase and PascalCase are split like snake_case: `read_csv`, `readCsv` and `CSVReader` all share a word with "csv".
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z]+|[^\W\d_A-Z]+|\d+")
_MOST_TEXTS = 40_000  # enough for document frequencies
_BUCKETS = 2**20
NUM_FEATURES = 26


def parts_of(text: str) -> list[str]:
    """Return the lower-cased words of a text, with identifiers split into words.

    >>> parts_of("pd.read_csv(filepathOrBuffer), HTMLParser 2")
    ['pd', 'read', 'csv', 'filepath', 'or', 'buffer', 'html', 'parser', '2']
    """
    return [part.casefold() for part in _PART.findall(text)]


class PairOverlap:
    """Features of how much two texts share, of words and of character n-grams of length 3 and 4.

    For each unit: the shared fraction of both texts together (Jaccard), of the first and of the second (containment),
    each counted and weighted by inverse document frequency; the cosine of the TF-IDF vectors; how much is shared, and
    the weight of the rarest shared unit; the logarithm of each text's length (a linear model can form their ratio from
    the two). Document frequencies are those of train. A unit that train does not have counts as the rarest, so it is
    taken into account if two texts share it.
    """

    def __init__(self, first: Sequence[str], second: Sequence[str]) -> None:
        texts = [*first[:_MOST_TEXTS], *second[:_MOST_TEXTS]]
        analyses: list[dict[str, Any]] = [{"analyzer": parts_of}, {"analyzer": "char_wb", "ngram_range": (3, 4)}]
        # Hashed units of norm 1 or 0, [N, 2^20]: units that train does not have get columns too.
        self._units = [
            make_pipeline(
                HashingVectorizer(n_features=_BUCKETS, alternate_sign=False, norm=None, **analysis),
                TfidfTransformer(sublinear_tf=True),
            ).fit(texts)
            for analysis in analyses
        ]

    def __call__(self, first: Sequence[str], second: Sequence[str]) -> NDArray[np.float64]:
        """Return the features of N pairs, [N, NUM_FEATURES]; each column has its own scale."""
        shared = [_shared(unit.transform(first), unit.transform(second), unit[-1].idf_) for unit in self._units]
        return np.concatenate(shared, axis=1)


def _shared(first: csr_matrix, second: csr_matrix, idf: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return [N, NUM_FEATURES / 2] from TF-IDF vectors [N, V], whose rows have norm 1 or 0."""
    in_first, in_second = first.sign(), second.sign()
    both = in_first.multiply(in_second).tocsr()
    weighed = both.multiply(idf).tocsr()
    counted = [_sums(both), _sums(in_first), _sums(in_second)]
    ratios = [
        shared / np.where(whole > 0, whole, 1.0)  # 0 where both are 0
        for shared, left, right in (counted, (_sums(weighed), in_first @ idf, in_second @ idf))
        for whole in (left + right - shared, left, right)
    ]
    cosine, rarest = _sums(first.multiply(second)), weighed.max(axis=1).toarray().ravel()
    num_shared, *lengths = np.log1p(counted)
    weight = _sums(weighed)
    return np.stack([*ratios, cosine, num_shared, np.log1p(weight), weight, rarest, *lengths], axis=1)


def _sums(matrix: csr_matrix) -> NDArray[np.float64]:
    return np.asarray(matrix.sum(axis=1)).ravel().astype(np.float64)


def standardised(compute: Callable[..., NDArray[Any]], *train: Any, least: float = 1e-9) -> Callable[..., NDArray[Any]]:
    """Return `compute`, with its columns [N, F] standardised on train; a column constant up to `least` becomes 0."""
    mean, scale = mean_and_scale(compute(*train), least)
    return lambda *inputs: (compute(*inputs) - mean) * scale


def mean_and_scale(features: NDArray[Any], least: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return what standardises columns [N, F]: the mean, and one over the deviation, 0 if that is at most `least`."""
    deviation = features.std(axis=0)
    return features.mean(axis=0), np.where(deviation > least, 1 / np.maximum(deviation, least), 0.0)
