"""Training batches and loss of a dual encoder: (query, relevant document) pairs with in-batch negatives."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bertline.finetuning.encoding import Sequences
from bertline.foundation.seeds import generator

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class EncodedSearch:
    """Encoded queries and collection, with the relevant documents and hard negatives of each query."""

    queries: Sequences
    documents: Sequences
    """Encoded collection; the same object for every split."""
    relevant: Sequence[Numbers]
    """For each query, the indices of its relevant documents in the collection."""
    hard_negatives: Sequence[Numbers]
    """For each query, indices of high-ranking documents not judged relevant; empty before mining."""


class PairBatches:
    """Batches of (query, relevant document) pairs; each epoch has every pair once, in a new order.

    Each query of a batch adds up to `num_hard_negatives` of its hard negatives, redrawn each epoch. A document occurs
    once in a batch. Pairs are not sorted by length: the model could then tell documents apart by length alone.

    Args:
        encoded: Queries and collection.
        batch_size: Number of pairs in a batch.
        num_hard_negatives: Maximum number of hard negatives per query.
        seed: Seed of the order, which is a function of the seed and the epoch number.
    """

    def __init__(self, encoded: EncodedSearch, *, batch_size: int, num_hard_negatives: int, seed: int) -> None:
        self._encoded = encoded
        self._batch_size = batch_size
        self._num_hard_negatives = num_hard_negatives
        self._seed = seed
        self._epochs = 0
        sizes = [len(documents) for documents in encoded.relevant]
        self._queries = np.repeat(np.arange(len(sizes)), sizes)
        self._documents = np.concatenate([np.zeros(0, dtype=np.int64), *encoded.relevant])

    def __len__(self) -> int:
        return math.ceil(len(self._queries) / self._batch_size)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        random = generator(self._seed, "order", self._epochs)
        self._epochs += 1
        order = random.permutation(len(self._queries))
        for start in range(0, len(order), self._batch_size):
            yield self._batch(order[start : start + self._batch_size], random)

    def _batch(self, pairs: NDArray[np.integer], random: np.random.Generator) -> dict[str, Tensor]:
        queries, positives = self._queries[pairs], self._documents[pairs]
        negatives = [self._drawn(query, random) for query in queries]
        documents, places = np.unique(np.concatenate([positives, *negatives]), return_inverse=True)
        relevant = np.stack([np.isin(documents, self._encoded.relevant[query]) for query in queries])
        targets = places[: len(pairs)]
        relevant[np.arange(len(pairs)), targets] = False
        return {
            **{f"query_{name}": tensor for name, tensor in self._encoded.queries.batch(queries).items()},
            **{f"document_{name}": tensor for name, tensor in self._encoded.documents.batch(documents).items()},
            "targets": torch.from_numpy(targets.astype(np.int64)),
            "also_relevant": torch.from_numpy(relevant),
        }

    def _drawn(self, query: int, random: np.random.Generator) -> Numbers:
        candidates = self._encoded.hard_negatives[query]
        return random.choice(candidates, min(self._num_hard_negatives, len(candidates)), replace=False)


def contrastive_loss(
    similarities: Tensor, targets: Tensor, also_relevant: Tensor, *, label_smoothing: float = 0.0
) -> Tensor:
    """Compute softmax cross-entropy over the documents of the batch (arXiv 2004.04906, section 3.2).

    Args:
        similarities: Similarities [B, D], already divided by the temperature.
        targets: Index of each query's target document [B].
        also_relevant: Bool mask [B, D] of other relevant documents, left out of the softmax; never the target.
        label_smoothing: Fraction of the target spread evenly over all documents in the softmax.

    >>> loss = contrastive_loss(torch.zeros(1, 3), torch.tensor([0]), torch.tensor([[False, True, False]]))
    >>> round(loss.exp().item(), 4)
    2.0
    """
    logits = similarities.float().masked_fill(also_relevant, -torch.inf)
    if not label_smoothing:
        return F.cross_entropy(logits, targets)
    log_probabilities = F.log_softmax(logits, dim=-1)
    right = log_probabilities.gather(1, targets[:, None])[:, 0]
    counted = (~also_relevant).sum(dim=1)
    spread = log_probabilities.masked_fill(also_relevant, 0.0).sum(dim=1) / counted
    return -((1 - label_smoothing) * right + label_smoothing * spread).mean()
