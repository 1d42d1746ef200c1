"""Encoded corpora in memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np

from bertline.examples.encoding import EncodedCorpus, EncodedShard, starts_of


def encoded_corpus(*shards: Iterable[Iterable[list[int]]]) -> EncodedCorpus:
    """A corpus of shards of documents, each a list of sentences, each a list of ids; what is empty is left out."""
    encoded = []
    for documents in shards:
        lengths = [[len(sentence) for sentence in document if sentence] for document in documents]
        tokens = [token for document in documents for sentence in document for token in sentence]
        sentence_starts = starts_of([length for document in lengths for length in document])
        document_starts, none = starts_of([len(document) for document in lengths if document]), np.empty(0, np.int64)
        encoded.append(EncodedShard(np.array(tokens, np.int64), sentence_starts, document_starts, none, none))
    return EncodedCorpus(encoded, [shard.counts() for shard in encoded])


def corpus_of(*documents: list[int]) -> EncodedCorpus:
    """Documents given by the lengths of their sentences; every token of the corpus is a different number."""
    token = itertools.count()
    return encoded_corpus([[[next(token) for _ in range(n)] for n in lengths] for lengths in documents])
