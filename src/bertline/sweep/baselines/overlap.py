"""Features of what the two texts of a pair have in common, which separate bags of words cannot express."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

# camelCase and PascalCase are split like snake_case: `read_csv`, `readCsv` and `CSVReader` all share a word with "csv".
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z]+|[^\W\d_A-Z]+|\d+")
_CHARACTERS = (3, 4)
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

    Args:
        first: First texts of train.
        second: Second texts of train.
    """

    def __init__(self, first: Sequence[str], second: Sequence[str]) -> None:
        texts = [*first[:_MOST_TEXTS], *second[:_MOST_TEXTS]]
        self._units = [_Unit(texts, analyzer=parts_of), _Unit(texts, analyzer="char_wb", ngram_range=_CHARACTERS)]

    def __call__(self, first: Sequence[str], second: Sequence[str]) -> NDArray[np.float64]:
        """Return the features of N pairs, [N, NUM_FEATURES]; each column has its own scale."""
        return np.concatenate([_shared(unit(first), unit(second), unit.idf) for unit in self._units], axis=1)


class _Unit:
    """TF-IDF vectors over hashed units, [N, 2^20], with norm 1 or 0: units that train does not have get columns too."""

    def __init__(self, texts: Sequence[str], **analysis: Any) -> None:
        self._counts = HashingVectorizer(n_features=_BUCKETS, alternate_sign=False, norm=None, **analysis)
        self._weights = TfidfTransformer(sublinear_tf=True).fit(self._counts.transform(texts))

    @property
    def idf(self) -> NDArray[np.float64]:
        return self._weights.idf_

    def __call__(self, texts: Sequence[str]) -> csr_matrix:
        return self._weights.transform(self._counts.transform(texts))


def _shared(first: csr_matrix, second: csr_matrix, idf: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return [N, NUM_FEATURES / 2] from TF-IDF vectors [N, V], whose rows have norm 1 or 0."""
    in_first, in_second = first.sign(), second.sign()
    both = in_first.multiply(in_second).tocsr()
    weighed = both.multiply(idf).tocsr()
    ratios: list[NDArray[np.float64]] = []
    for of_both, of_first, of_second in (
        (_sums(both), _sums(in_first), _sums(in_second)),
        (_sums(weighed), in_first @ idf, in_second @ idf),
    ):
        ratios += [
            _ratio(of_both, of_first + of_second - of_both),
            _ratio(of_both, of_first),
            _ratio(of_both, of_second),
        ]
    of_both = _sums(weighed)
    more = [
        _sums(first.multiply(second)),
        np.log1p(_sums(both)),
        np.log1p(of_both),
        of_both,
        np.asarray(weighed.max(axis=1).todense()).ravel(),
        np.log1p(_sums(in_first)),
        np.log1p(_sums(in_second)),
    ]
    return np.stack([*ratios, *more], axis=1)


def _sums(matrix: csr_matrix) -> NDArray[np.float64]:
    return np.asarray(matrix.sum(axis=1)).ravel().astype(np.float64)


def _ratio(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the ratio; 0 where both are 0."""
    return part / np.where(whole > 0, whole, 1.0)


class Standardised:
    """Features standardised to mean 0 and standard deviation 1 on train; a feature that is constant on train becomes 0.

    Args:
        compute: Maps first and second texts to features [N, F].
        first: First texts of train.
        second: Second texts of train.
    """

    def __init__(
        self,
        compute: Callable[[Sequence[str], Sequence[str]], NDArray[np.float64]],
        first: Sequence[str],
        second: Sequence[str],
    ) -> None:
        self._compute = compute
        found = compute(first, second)
        self._mean = found.mean(axis=0)
        deviation = found.std(axis=0)
        self._scale = np.where(deviation > 1e-9, 1 / np.maximum(deviation, 1e-9), 0.0)

    def __call__(self, first: Sequence[str], second: Sequence[str]) -> NDArray[np.float64]:
        """Return standardised features, [N, F]."""
        return (self._compute(first, second) - self._mean) * self._scale
