"""Features of rows for linear models: n-grams, what the two texts of a pair share, and windows of words."""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.pipeline import make_pipeline

from bertline.tasks.stored_rows import MultiLabelRows, NumberRows, TaggedRows, TextRows

TextsRows = TextRows | MultiLabelRows | NumberRows
Unit = Literal["word", "char", "word_and_char"]
UNITS: tuple[Unit, ...] = get_args(Unit)
UNIT_TITLES: dict[Unit, str] = {
    "word": "word n-grams",
    "char": "character n-grams",
    "word_and_char": "word and character n-grams",
}
_MOST_FEATURES = 500_000  # per column of texts: the n-grams most frequent in train
MOST_CHARACTERS = {"word": 40_000_000, "char": 8_000_000}
"""Maximum number of train characters that are read, a prefix of the shuffled rows: a linear model gains little from
more."""
_ANALYSES: dict[str, dict[str, Any]] = {
    # Of one letter, too; identifiers are split at underscores and dots, as by the tokenizer.
    "word": {"ngram_range": (1, 2), "token_pattern": r"[^\W_]+"},
    "char": {"ngram_range": (2, 5), "analyzer": "char_wb"},
    "any_char": {"ngram_range": (1, 2), "analyzer": "char"},
}


class RowFeatures(ABC):
    """Fitted features of rows; those of this class can be saved in a folder (`linear.model`)."""

    @abstractmethod
    def __call__(self, rows: Any) -> Any:
        """Return the features of rows or of all their words, [N, F], as a SciPy sparse matrix or an array."""


@dataclass(frozen=True, eq=False)
class Ngrams:
    """TF-IDF of the n-grams of one column of texts."""

    column: int
    unit: Literal["word", "char", "any_char"]
    vocabulary: tuple[str, ...]
    """N-grams in the order of the features."""
    idf: NDArray[np.float64]

    @classmethod
    def fitted(cls, column: int, texts: Sequence[str], unit: Literal["word", "char"]) -> Self:
        chosen: Literal["word", "char", "any_char"] = unit
        vectorizer = TfidfVectorizer(**_ANALYSES[unit], max_features=_MOST_FEATURES)
        try:
            vectorizer.fit(texts)
        except ValueError:
            # No text has a letter or a digit (only punctuation or emoji, or nothing): use characters instead of words.
            chosen = "any_char"
            vectorizer = TfidfVectorizer(**_ANALYSES[chosen]).fit([f"{text} " for text in texts])
        return cls(column, chosen, tuple(vectorizer.get_feature_names_out().tolist()), vectorizer.idf_)

    @cached_property
    def vectorizer(self) -> TfidfVectorizer:
        vectorizer = TfidfVectorizer(**_ANALYSES[self.unit], sublinear_tf=True, vocabulary=self.vocabulary)
        vectorizer.idf_ = self.idf
        return vectorizer


@dataclass(frozen=True, eq=False)
class NgramFeatures(RowFeatures):
    """TF-IDF of n-grams, fitted on train; the two texts of a pair have separate features."""

    parts: tuple[Ngrams, ...]

    @classmethod
    def fitted(cls, train: TextsRows, unit: Unit) -> Self:
        """Fit to train.

        Args:
            train: Rows to fit on.
            unit: `word`: n-grams of one and two words; `char`: n-grams of 2 to 5 characters inside words, including
                their edges; `word_and_char`: both, each with norm 1.
        """
        kinds: tuple[Literal["word", "char"], ...] = ("word", "char") if unit == "word_and_char" else (unit,)
        each = [(number, texts, kind) for number, texts in enumerate(columns(train)) for kind in kinds]
        return cls(tuple(Ngrams.fitted(*one) for one in each))

    def __call__(self, rows: TextsRows) -> csr_matrix:
        """Return features [N, n-grams]; the columns of the second texts follow those of the first."""
        texts = columns(rows)
        return hstack([part.vectorizer.transform(texts[part.column]) for part in self.parts]).tocsr()


def columns(rows: TextsRows) -> list[list[str]]:
    """Return the texts of passages as one list; of pairs, the first texts and the second texts."""
    return [rows.texts] if rows.text_pairs is None else [rows.texts, rows.text_pairs]


def rows_read(rows: TextsRows, unit: Unit) -> Any:
    """Return the first rows of train that an n-gram model is fitted on."""
    most = MOST_CHARACTERS["word" if unit == "word" else "char"]
    return rows_up_to(rows, [sum(map(len, texts)) for texts in zip(*columns(rows), strict=True)], most)


def rows_up_to(rows: Any, sizes: Sequence[int], most: int) -> Any:
    """Return the first rows whose sizes add up to `most` at most, but one row at least."""
    return rows.first(max(1, int(np.searchsorted(np.cumsum(sizes), most, side="right"))))


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


@dataclass(frozen=True, eq=False)
class PairOverlap:
    """Features of how much two texts share, of words and of character n-grams of length 3 and 4.

    For each unit: the shared fraction of both texts together (Jaccard), of the first and of the second (containment),
    each counted and weighted by inverse document frequency; the cosine of the TF-IDF vectors; how much is shared, and
    the weight of the rarest shared unit; the logarithm of each text's length (a linear model can form their ratio from
    the two). Document frequencies are those of train. A unit that train does not have counts as the rarest, so it is
    taken into account if two texts share it.
    """

    idf: tuple[NDArray[np.float64], ...]
    """Inverse document frequencies of the hashed units, [2^20] of words, then of character n-grams."""

    @classmethod
    def fitted(cls, first: Sequence[str], second: Sequence[str]) -> Self:
        texts = [*first[:_MOST_TEXTS], *second[:_MOST_TEXTS]]
        return cls(tuple(make_pipeline(*_hashed(unit)).fit(texts)[-1].idf_ for unit in _PAIR_UNITS))

    @cached_property
    def _units(self) -> list[Any]:
        pipelines = [make_pipeline(*_hashed(unit)) for unit in _PAIR_UNITS]
        for pipeline, idf in zip(pipelines, self.idf, strict=True):
            pipeline[-1].idf_ = idf
        return pipelines

    def __call__(self, first: Sequence[str], second: Sequence[str]) -> NDArray[np.float64]:
        """Return the features of N pairs, [N, NUM_FEATURES]; each column has its own scale."""
        shared = [_shared(unit.transform(first), unit.transform(second), unit[-1].idf_) for unit in self._units]
        return np.concatenate(shared, axis=1)


_PAIR_UNITS: tuple[dict[str, Any], ...] = ({"analyzer": parts_of}, {"analyzer": "char_wb", "ngram_range": (3, 4)})


def _hashed(unit: dict[str, Any]) -> tuple[HashingVectorizer, TfidfTransformer]:
    """Return the steps to hashed units of norm 1 or 0, [N, 2^20]: units that train does not have get columns, too."""
    hashing = HashingVectorizer(n_features=_BUCKETS, alternate_sign=False, norm=None, **unit)
    return hashing, TfidfTransformer(sublinear_tf=True)


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


@dataclass(frozen=True, eq=False)
class PairFeatures(RowFeatures):
    """What the two texts of a pair share, standardised on train, and their words, if asked for."""

    overlap: PairOverlap
    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    words: NgramFeatures | None

    def __call__(self, rows: TextsRows) -> Any:
        shared = (self.overlap(*columns(rows)) - self.mean) * self.scale
        return shared if self.words is None else hstack([self.words(rows), csr_matrix(shared)]).tocsr()


@dataclass(frozen=True, eq=False)
class WindowFeatures(RowFeatures):
    """Hashed features of each word: the word, its affixes and shape, its neighbours and properties of the sentence."""

    def __call__(self, rows: TaggedRows) -> csr_matrix:
        """Return the features of the words of all rows, [W, 2^20]."""
        hasher = FeatureHasher(n_features=_BUCKETS, input_type="string", alternate_sign=False, dtype=np.float32)
        return hasher.transform(each for words in rows.words for each in word_features(words))


_REACH = 2
_LONGEST_AFFIX = 4


def word_features(words: Sequence[str]) -> Iterator[list[str]]:
    """Yield the names of the binary features of each word of a sentence.

    >>> next(word_features(["n_jobs", "is"]))[:8]
    ['always', 'word=n_jobs', 'lower=n_jobs', 'shape=x_x', '-2=<-1>', '-1=<-1>', '+1=is', '+2=<1>']
    """
    lower, shapes = [word.casefold() for word in words], [shape_of(word) for word in words]
    counts = Counter(lower)
    first, length = (lower[0] if lower else ""), min(len(words) // 8, 4)
    for place, word in enumerate(words):
        own, shape = lower[place], shapes[place]
        around = {
            offset: lower[place + offset] if 0 <= place + offset < len(words) else f"<{np.sign(offset)}>"
            for offset in range(-_REACH, _REACH + 1)
            if offset
        }
        yield [
            "always",
            f"word={word}",
            f"lower={own}",
            f"shape={shape}",
            *(f"{offset:+d}={other}" for offset, other in around.items()),
            *(f"shape{offset:+d}={shapes[place + offset]}" for offset in (-1, 1) if 0 <= place + offset < len(words)),
            f"-1,0={around[-1]} {own}",
            f"0,+1={own} {around[1]}",
            f"-1,+1={around[-1]} {around[1]}",
            f"-2,-1={around[-2]} {around[-1]}",
            f"+1,+2={around[1]} {around[2]}",
            *(f"begins={own[:size]}" for size in range(1, min(_LONGEST_AFFIX, len(own)) + 1)),
            *(f"ends={own[-size:]}" for size in range(1, min(_LONGEST_AFFIX, len(own)) + 1)),
            f"length={min(len(own), 12)}",
            f"place={min(place, 4)}",
            f"shape,place={shape} {min(place, 2)}",
            f"shape,-1={shape} {around[-1]}",
            f"shape,+1={shape} {around[1]}",
            f"sentence begins={first}",
            f"sentence begins, shape={first} {shape}",
            f"sentence length={length}",
            f"times={min(counts[own], 3)} {shape}",
        ]


def shape_of(word: str) -> str:
    """Return the shape of a word, one mark per run of characters of a class: X upper case, x other letters, 0 digits,
    other characters as they are. The shape of a single character ends with a dot.

    >>> shape_of("DataFrame2"), shape_of("n_jobs"), shape_of("x")
    ('XxXx0', 'x_x', 'x.')
    """
    shape = ""
    for character in word:
        mark = "X" if character.isupper() else "x" if character.isalpha() else "0" if character.isdigit() else character
        if not shape.endswith(mark):
            shape += mark
    return f"{shape}." if len(word) == 1 else shape
