"""BM25: the baseline for retrieval, the first stage of re-ranking, and a source of hard negatives."""

import logging
import re
from collections.abc import Sequence
from typing import Literal, get_args

import bm25s
import numpy as np
from numpy.typing import NDArray

K1, B = 1.5, 0.75
"""Defaults of bm25s. The literature recommends k1 from 1.2 to 2 and b from 0.5 to 0.8 (Robertson and Zaragoza 2009,
"The Probabilistic Relevance Framework: BM25 and Beyond", section 3.5)."""
_WORD = re.compile(r"[^\W_]{2,}")
# bm25s logs every index it builds.
logging.getLogger("bm25s").setLevel(logging.WARNING)
_PREFIX, _RUN, _SHORTEST_STEM = 5, 4, 3
Analysis = Literal["words", "words_no_stop", "stems", "stems_no_stop", "prefixes", "characters"]
ANALYSES: tuple[Analysis, ...] = get_args(Analysis)


def terms_of(text: str, analysis: Analysis) -> list[str]:
    """Return the terms by which a text is indexed.

    `words` are the words of `words_of`. `stems` are words without an English plural ending, `ed` or `ing`. `no_stop`
    drops English stop words. `prefixes` are the first 5 characters of each word, and `characters` the character 4-grams
    within words; both need no knowledge of the language (McNamee and Mayfield 2004, "Character N-Gram Tokenization for
    European Language Text Retrieval", sections 2 and 4).

    >>> terms_of("the indices of sorted classes", "stems_no_stop"), terms_of("reading it", "characters")
    (['indice', 'sort', 'class'], ['read', 'eadi', 'adin', 'ding', 'it'])
    """
    words = words_of(text)
    if analysis.endswith("no_stop"):
        # Imported here: it takes a second, and whatever loads a model of any kind imports this module.
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

        words = [word for word in words if word not in ENGLISH_STOP_WORDS]
    if analysis.startswith("stems"):
        return [_stem(word) for word in words]
    if analysis == "prefixes":
        return [word[:_PREFIX] for word in words]
    if analysis == "characters":
        return [word[i : i + _RUN] for word in words for i in range(max(len(word) - _RUN, 0) + 1)]
    return words


def _stem(word: str) -> str:
    """Remove a plural ending with Harman's S-stemmer (1991, "How effective is suffixing?", figure 1), then ed or ing.

    >>> [_stem(word) for word in ("queries", "classes", "values", "class", "status", "sorted", "mapping", "ring")]
    ['query', 'class', 'value', 'class', 'status', 'sort', 'map', 'ring']
    """
    if word.endswith("ies") and not word.endswith(("eies", "aies")) and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("us", "ss")) and len(word) > 3:
        word = word[:-1]
    for ending in ("ing", "ed"):
        stem = word.removesuffix(ending)
        if stem != word and len(stem) >= _SHORTEST_STEM:
            return stem[:-1] if stem[-1] == stem[-2] and stem[-1] not in "lsz" else stem
    return word


def words_of(text: str) -> list[str]:
    """Split a text into lower-cased words of two or more characters.

    Identifiers are split at underscores, as in the encoder's tokenizer. There are no stop words and no stemming; see
    `terms_of` for those.

    >>> words_of("Ströme in read_csv(), 2 Achsen")
    ['ströme', 'in', 'read', 'csv', 'achsen']
    """
    return _WORD.findall(text.casefold())


class Bm25:
    """BM25 index over a collection of texts, with Lucene's formula, computed by bm25s (arXiv 2407.03618).

    A query word with document frequency df that occurs tf times in a document of dl words contributes
    ln(1 + (N - df + 0.5) / (df + 0.5)) * tf / (tf + k1 * (1 - b + b * dl / mean dl)).

    Args:
        texts: Texts of the collection.
        k1: Term-frequency saturation.
        b: Strength of document-length normalization, 0 to 1.
        analysis: How a text is split into terms, see `terms_of`.
    """

    def __init__(self, texts: Sequence[str], *, k1: float = K1, b: float = B, analysis: Analysis = "words") -> None:
        self.num_texts = len(texts)
        self._analysis: Analysis = analysis
        corpus = [terms_of(text, analysis) for text in texts]
        self._vocabulary = {word for words in corpus for word in words}
        self._index = bm25s.BM25(k1=k1, b=b, method="lucene")
        if self._vocabulary:
            self._index.index(corpus, show_progress=False)

    def scores(self, query: str) -> NDArray[np.float32]:
        """Return the score of every text, [N]; 0 without a shared word. A word repeated in the query counts again."""
        words = [word for word in terms_of(query, self._analysis) if word in self._vocabulary]
        if not words:
            return np.zeros(self.num_texts, dtype=np.float32)
        return self._index.get_scores(words)

    def best(self, query: str, k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the k best texts that share a word with the query, best first; ties keep the collection's order.

        Returns:
            Indices and scores of at most k texts.
        """
        scores = self.scores(query)
        order = np.argsort(-scores, kind="stable")[:k]
        order = order[scores[order] > 0]
        return order.astype(np.int64), scores[order]
