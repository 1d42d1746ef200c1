"""Training of a two-tower encoder: pairs of a query and a relevant document, against the documents of the batch."""

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
    """Queries and the whole collection, with what is known of them."""

    queries: Sequences
    documents: Sequences
    """The collection; the same object for every split."""
    relevant: Sequence[Numbers]
    """Of each query, the numbers of its relevant documents in the collection."""
    hard_negatives: Sequence[Numbers]
    """Of each query, documents that look right and are not known to be; none before mining."""


class PairBatches:
    """Batches of pairs (query, relevant document); an epoch has each pair once, in an order that the seed decides.

    Each query of a batch brings `num_hard_negatives` of its own, drawn anew in each epoch. A document stands once in a
    batch. Pairs are not sorted by length: documents of one length are easy to tell from others by their length alone.

    Args:
        encoded: Queries and collection.
        batch_size: Pairs of a batch.
        num_hard_negatives: For each query.
        seed: The order is a function of the seed and the number of the epoch.
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
    """Softmax over the documents of the batch, of which one is right for each query (arXiv 2004.04906, section 3.2).

    Args:
        similarities: [B, D], already divided by the temperature.
        targets: [B], which document is right.
        also_relevant: [B, D] bool: others that are relevant too, and so are no wrong answers; never the right one.
        label_smoothing: Share of the target that is spread evenly over all documents that count.

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
