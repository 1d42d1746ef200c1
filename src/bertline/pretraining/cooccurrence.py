"""Word embeddings from the co-occurrences of tokens in the examples, in place of random ones.

With random embeddings the first hundreds of steps teach the model little beyond the frequencies of tokens. Which tokens
occur near each other is counted in seconds, and a factorisation gives related tokens related vectors from the start.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from sklearn.utils.extmath import randomized_svd
from torch import Tensor

from bertline.examples.store import ExampleStore
from bertline.foundation.seeds import seed_for

_WINDOW = 5
"""Largest distance between two tokens that co-occur; a pair counts for one over its distance (GloVe, section 4.2)."""
_CONTEXT_SMOOTHING = 0.75
"""Power of the frequencies of contexts, without which rare contexts have the largest values (Levy et al. 2015)."""
_FEWEST_COUNTS = 1.0
"""Pairs that count for less are left out: the rarest, three quarters of all."""
_MOST_TOKENS = 1 << 26
"""About how many tokens are counted, in batches from all of the text: more would cost minutes."""
_BATCH_TOKENS = 1 << 22
_POWER_ITERATIONS = 4

_Counts = Any  # a sparse matrix of scipy, which has no types


def cooccurrence_embeddings(store: ExampleStore, *, vocab_size: int, hidden_size: int, seed: int) -> Tensor:
    """Return [vocab_size, hidden_size] embeddings of length 1; rows of 0 for tokens that co-occur with none.

    They are the left singular vectors of the positive pointwise mutual information of tokens, each times the square
    root of its singular value, so that the product of two embeddings grows with the information of the pair. A random
    rotation spreads what the first singular vectors hold over all components; it changes no product. Tokens co-occur
    within a segment, and `vocab_size` is above `hidden_size`.

    References:
        Levy and Goldberg, Neural Word Embedding as Implicit Matrix Factorization (NeurIPS 2014). Levy, Goldberg and
        Dagan, Improving Distributional Similarity with Lessons Learned from Word Embeddings (TACL 2015), sections 3.1
        and 3.3. Halko et al., Finding Structure with Randomness (arXiv 0909.4061), algorithm 5.1.
    """
    information = positive_information(cooccurrences(store, vocab_size))
    drawn = seed_for(seed, "cooccurrence_embeddings")
    generator = np.random.default_rng(drawn)
    left, values, _ = randomized_svd(
        information, hidden_size, n_iter=_POWER_ITERATIONS, random_state=int(generator.integers(1 << 31))
    )
    rotation, _ = np.linalg.qr(generator.normal(size=(hidden_size, hidden_size)))
    rows = (left * np.sqrt(values)) @ rotation
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    is_known = np.asarray(information.getnnz(axis=1) > 0)[:, None] & (lengths > 0)
    return torch.from_numpy(np.divide(rows, lengths, out=np.zeros_like(rows), where=is_known).astype(np.float32))


def cooccurrences(store: ExampleStore, vocab_size: int) -> _Counts:
    """Return [vocab_size, vocab_size] how often two tokens stand near each other, the nearer the more; symmetric."""
    special_ids = np.array(sorted(store.manifest["special_ids"].values()))
    counts = sparse.csr_matrix((vocab_size, vocab_size), dtype=np.float32)
    every = max(1, math.ceil(store.num_tokens / _MOST_TOKENS))
    batches = (
        ids[start : start + _BATCH_TOKENS] for ids in store.id_shards() for start in range(0, len(ids), _BATCH_TOKENS)
    )
    for batch in itertools.islice(batches, 0, None, every):
        counts += _one_sided(batch, special_ids, vocab_size)
    return counts + counts.T


def _one_sided(ids: npt.NDArray[np.unsignedinteger], special_ids: npt.NDArray[np.int64], vocab_size: int) -> _Counts:
    """Count each token with those behind it in its segment."""
    is_special = np.isin(ids, special_ids)
    segments = np.cumsum(is_special)
    rows, columns, weights = [], [], []
    for distance in range(1, _WINDOW + 1):
        left, right = ids[:-distance], ids[distance:]
        together = (segments[:-distance] == segments[distance:]) & ~is_special[:-distance]
        rows.append(left[together])
        columns.append(right[together])
        weights.append(np.full(int(together.sum()), 1 / distance, dtype=np.float32))
    pairs = (np.concatenate(rows).astype(np.int32), np.concatenate(columns).astype(np.int32))
    return sparse.coo_matrix((np.concatenate(weights), pairs), shape=(vocab_size, vocab_size)).tocsr()


def positive_information(counts: _Counts) -> _Counts:
    """Return the positive pointwise mutual information: `max(0, log(p(token, context) / (p(token) p(context))))`."""
    of_token = np.asarray(counts.sum(axis=1), dtype=np.float64).ravel()
    of_context = of_token**_CONTEXT_SMOOTHING
    pairs = counts.tocoo(copy=False)
    is_frequent = pairs.data >= _FEWEST_COUNTS  # first, as only a quarter are left to compute
    rows, columns, together = pairs.row[is_frequent], pairs.col[is_frequent], pairs.data[is_frequent]
    expected = of_token[rows] * of_context[columns] / max(of_context.sum(), 1e-9)
    values = np.log(together / expected)
    above = values > 0
    return sparse.csr_matrix((values[above].astype(np.float32), (rows[above], columns[above])), shape=counts.shape)
