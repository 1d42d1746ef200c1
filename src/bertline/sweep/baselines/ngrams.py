"""TF-IDF features of passages and pairs for the linear baselines: n-grams of words and of characters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer

from bertline.tasks.stored_rows import MultiLabelRows, NumberRows, TextRows

TextsRows = TextRows | MultiLabelRows | NumberRows
Unit = Literal["word", "char", "word_and_char"]
UNITS: tuple[Unit, ...] = get_args(Unit)
TITLES: dict[Unit, str] = {
    "word": "word n-grams, linear model",
    "char": "character n-grams, linear model",
    "word_and_char": "word and character n-grams, linear model",
}
# Words of one letter are kept; identifiers are split at underscores and dots, as by the encoder's tokenizer.
WORD = r"[^\W_]+"
_CHARACTERS = (2, 5)
MOST_FEATURES = 500_000
"""Maximum number of features per column of texts; the n-grams most frequent in train are kept."""
MOST_CHARACTERS = {"word": 40_000_000, "char": 8_000_000}
"""Maximum number of train characters that are read, a prefix of the shuffled rows: a linear model gains little from
more."""


class NgramFeatures:
    """TF-IDF of n-grams, fitted on train; the two texts of a pair have separate features.

    Args:
        train: The rows to fit on.
        unit: `word`: n-grams of one and two words; `char`: n-grams of 2 to 5 characters inside words, including their
            edges; `word_and_char`: both, each with norm 1.
    """

    def __init__(self, train: TextsRows, unit: Unit) -> None:
        kinds: tuple[Literal["word", "char"], ...] = ("word", "char") if unit == "word_and_char" else (unit,)
        self._by_column = [[_fitted(texts, kind) for kind in kinds] for texts in columns(train)]

    def __call__(self, rows: TextsRows) -> csr_matrix:
        """Return features [N, n-grams]; the columns of the second texts follow those of the first."""
        return hstack(
            [
                vectorizer.transform(texts)
                for vectorizers, texts in zip(self._by_column, columns(rows), strict=True)
                for vectorizer in vectorizers
            ]
        ).tocsr()


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


def word_vectorizer(texts: Sequence[str], *, longest: int) -> TfidfVectorizer:
    """Fit TF-IDF of n-grams of up to `longest` words on texts."""
    vectorizer = TfidfVectorizer(
        ngram_range=(1, longest), sublinear_tf=True, token_pattern=WORD, max_features=MOST_FEATURES
    )
    return _fitted_or_characters(vectorizer, texts)


def _fitted(texts: Sequence[str], unit: Literal["word", "char"]) -> TfidfVectorizer:
    if unit == "word":
        return word_vectorizer(texts, longest=2)
    vectorizer = TfidfVectorizer(
        analyzer="char_wb", ngram_range=_CHARACTERS, sublinear_tf=True, max_features=MOST_FEATURES
    )
    return _fitted_or_characters(vectorizer, texts)


def _fitted_or_characters(vectorizer: TfidfVectorizer, texts: Sequence[str]) -> TfidfVectorizer:
    try:
        return vectorizer.fit(texts)
    except ValueError:
        # No text has a letter or a digit (only punctuation or emoji, or nothing): use characters instead of words.
        characters = TfidfVectorizer(analyzer="char", ngram_range=(1, 2), sublinear_tf=True)
        return characters.fit([f"{text} " for text in texts])


def units_of(rows: TextsRows) -> tuple[Unit, ...]:
    """Return the units of n-grams; only words for pairs, where each text alone says little about the label."""
    return UNITS if rows.text_pairs is None else ("word",)
