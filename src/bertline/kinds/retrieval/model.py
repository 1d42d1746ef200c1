"""Retrieval with a dual encoder: query and documents are encoded separately by one encoder and compared as vectors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from bertline.finetuning.encoding import INDICES, INPUT_NAMES, Sequences, encode_texts, outputs_of
from bertline.finetuning.task_kind import Batch, Batches, Calibration, LossOptions, Statistics, TaskKind
from bertline.finetuning.vector_index import VectorIndex
from bertline.foundation.errors import ArtifactError
from bertline.foundation.seeds import generator
from bertline.kinds.retrieval.config import RetrievalTaskConfig
from bertline.modeling.bert import BertModel
from bertline.modeling.losses import softmax_divergence, vector_distance
from bertline.modeling.weight_files import digest_of_weights
from bertline.tasks.bm25 import Bm25
from bertline.tasks.metrics import ranking
from bertline.tasks.stored_rows import COLLECTION, Documents, QueryRows, SplitName, read_rows
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Machine

# Training batches and loss of a dual encoder: (query, relevant document) pairs with in-batch negatives.

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
            INDICES: torch.from_numpy(np.concatenate([queries, len(self._encoded.queries) + documents])),
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


DEPTH = 1000
"""Number of documents kept in each query's ranking: the usual depth for trec_eval, over which MAP is computed."""
MINED = 30
"""Number of hard negatives mined for each query; training samples from them."""
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Found:
    """Ranking of documents for each of N queries."""

    documents: NDArray[np.int64]
    """Indices in the collection [N, K], best first, padded with -1."""
    scores: NDArray[np.float32]
    """Scores [N, K], descending, padded with -inf."""


class Retrieval(TaskKind[QueryRows, EncodedSearch, Found]):
    """Finds documents for queries (Dense Passage Retrieval, arXiv 2004.04906, with shared weights).

    A task has one collection, which `read` loads from the task's folder; `use_collection` replaces it.
    """

    rows_class = QueryRows
    head = "vectors"
    config: RetrievalTaskConfig
    score_names = ("ndcg@10", "mrr@10", "recall@100", "map")

    def __init__(self, config: RetrievalTaskConfig, labels: Sequence[str]) -> None:
        super().__init__(config, labels)
        self._collection: Documents | None = None
        self._numbers: dict[str, int] = {}
        self._places: NDArray[np.int64] | None = None
        self._encoded: tuple[Tokenizer, Sequences] | None = None
        self._bm25: Bm25 | None = None
        self._indexed: tuple[object, str, VectorIndex] | None = None

    def read(self, task_folder: Path, split: SplitName) -> QueryRows:
        """See `TaskKind.read`; also reads the collection, once."""
        if self._collection is None:
            self.use_collection(read_rows(task_folder, COLLECTION, Documents))
        return super().read(task_folder, split)

    def use_collection(self, documents: Documents) -> None:
        """Set the documents to search."""
        self._collection = documents
        self._numbers = {identity: number for number, identity in enumerate(documents.ids)}
        self._encoded = self._bm25 = self._indexed = self._places = None

    @property
    def collection(self) -> Documents:
        """Documents to search.

        Raises:
            ArtifactError: No collection has been set.
        """
        if self._collection is None:
            raise ArtifactError("A retrieval model needs documents to search; give it a collection first.")
        return self._collection

    @property
    def bm25(self) -> Bm25:
        """BM25 over the collection, shared by the baseline and by hard-negative mining."""
        if self._bm25 is None:
            self._bm25 = Bm25(self.collection.texts_read())
        return self._bm25

    # ---- encoding and training

    def encode_queries(self, texts: Sequence[str], tokenizer: Tokenizer) -> Sequences:
        """Encode queries with their prefix, truncated to `query_max_length`."""
        prefixed = [self.config.query_prefix + text for text in texts]
        return encode_texts(prefixed, None, tokenizer, max_length=self.config.query_max_length)

    def encode_documents(self, documents: Documents, tokenizer: Tokenizer) -> Sequences:
        """Encode titles and texts of documents with their prefix, truncated to `max_length`."""
        prefixed = [self.config.document_prefix + text for text in documents.texts_read()]
        return encode_texts(prefixed, None, tokenizer, max_length=self.config.max_length)

    def encode(self, rows: QueryRows, tokenizer: Tokenizer) -> EncodedSearch:
        """See `TaskKind.encode`; the collection is encoded once for all splits."""
        if self._encoded is None or self._encoded[0] is not tokenizer:
            self._encoded = tokenizer, self.encode_documents(self.collection, tokenizer)
        relevant = [
            np.array([self._numbers[each] for each, value in judged if value > 0 and each in self._numbers], np.int64)
            for judged in _judged(rows)
        ]
        nothing = np.zeros(0, dtype=np.int64)
        queries = self.encode_queries(rows.queries, tokenizer)
        return EncodedSearch(queries, self._encoded[1], relevant, [nothing] * len(rows))

    def lengths(self, encoded: EncodedSearch) -> NDArray[np.int64]:
        """See `TaskKind.lengths`: lengths of queries, then of documents."""
        return np.concatenate([encoded.queries.lengths, encoded.documents.lengths])

    def prepared(self, model: nn.Module, encoded: EncodedSearch, rows: QueryRows, machine: Machine) -> EncodedSearch:
        """See `TaskKind.prepared`: mines hard negatives, excluding documents judged relevant."""
        depth = MINED + max((len(documents) for documents in encoded.relevant), default=0)
        ranked: list[Numbers]
        if not self.config.num_hard_negatives:
            return encoded
        match self.config.hard_negatives:
            case "none":
                return encoded
            case "bm25":
                ranked = [self.bm25.best(query, depth)[0] for query in rows.queries]
            case "encoder":
                ranked = list(self._search(model, encoded, machine, depth)[0])
        mined = [
            candidates[~np.isin(candidates, relevant)][:MINED]
            for candidates, relevant in zip(ranked, encoded.relevant, strict=True)
        ]
        return replace(encoded, hard_negatives=mined)

    def num_cut(self, encoded: EncodedSearch) -> int:
        """See `TaskKind.num_cut`: truncated queries."""
        return int(encoded.queries.cut.sum())

    def num_cut_documents(self, encoded: EncodedSearch) -> int:
        return int(encoded.documents.cut.sum())

    def training_batches(self, encoded: EncodedSearch, *, batch_size: int, seed: int) -> Batches:
        """See `TaskKind.training_batches`: a batch consists of (query, relevant document) pairs."""
        num_hard_negatives = 0 if self.config.hard_negatives == "none" else self.config.num_hard_negatives
        return PairBatches(encoded, batch_size=batch_size, num_hard_negatives=num_hard_negatives, seed=seed)

    def training_outputs(self, model: nn.Module, batch: Batch) -> list[Tensor]:
        """Return the vectors of the batch's queries [B, H] and documents [D, H]."""
        return [
            self._comparable(model(*(batch[f"{side}_{name}"] for name in INPUT_NAMES)).float())
            for side in ("query", "document")
        ]

    def soft_targets(self, model: nn.Module, encoded: EncodedSearch, machine: Machine) -> NDArray[np.float32]:
        """Return the vectors of all queries, then of all documents, with the size of the teacher's."""
        return np.concatenate([self.vectors(model, side, machine) for side in (encoded.queries, encoded.documents)])

    def soft_loss(self, outputs: list[Tensor], teacher: Tensor, batch: Batch, temperature: float) -> Tensor:
        """Compute the mean distance from the teacher's vectors or, where those have another size, the divergence from
        its softmax over the documents of the batch (as in SEED, arXiv 2101.04731, section 3.2)."""
        queries, documents = outputs
        if teacher.shape[1] == queries.shape[1]:
            return vector_distance(torch.cat(outputs), teacher).mean()
        similarities = queries @ documents.T / self.config.temperature
        theirs = teacher[: len(queries)] @ teacher[len(queries) :].T / self.config.temperature
        return softmax_divergence(similarities, theirs, temperature).mean()

    def hard_loss(self, model: nn.Module, outputs: list[Tensor], batch: Batch, options: LossOptions) -> Tensor:
        """See `TaskKind.hard_loss`: softmax over the documents of the batch."""
        queries, documents = outputs
        return contrastive_loss(
            queries @ documents.T / self.config.temperature,
            batch["targets"],
            batch["also_relevant"],
            label_smoothing=options.label_smoothing,
        )

    # ---- predicting and scoring

    def vectors(self, model: nn.Module, sequences: Sequences, machine: Machine) -> NDArray[np.float32]:
        """Compute the vector of each sequence, [N, H]; unit vectors if the similarity is cosine."""
        width = cast(BertModel, model.bert).config.hidden_size
        return outputs_of(model, sequences, machine, width, read=self._comparable)

    def predict(self, model: nn.Module, encoded: EncodedSearch, machine: Machine) -> Found:
        """See `TaskKind.predict`: the first `DEPTH` documents."""
        return Found(*self._search(model, encoded, machine, DEPTH))

    def statistics(self, rows: QueryRows, predictions: Found, calibration: Calibration) -> Statistics:
        """Return nDCG@10, MRR@10, recall@100 and average precision of each query, [N, 4]."""
        values = np.zeros((len(rows), len(self.score_names)))
        relevance_of = np.zeros(len(self.collection) + 1, dtype=np.int64)
        for row, ids in enumerate(rows.document_ids):
            judged = [self._numbers.get(identity, -1) for identity in ids]  # -1, the last entry, stands for unknown ids
            relevance_of[judged] = rows.relevances[row]
            ranked = relevance_of[self._ranked(predictions, row)].tolist()
            relevance_of[judged] = 0
            num_relevant = ranking.num_relevant(rows.relevances[row])
            values[row] = (
                ranking.ndcg(ranked, rows.relevances[row], 10),
                ranking.reciprocal_rank(ranked, 10),
                ranking.recall(ranked, num_relevant, 100),
                ranking.average_precision(ranked, num_relevant),
            )
        return values

    def table(self, rows: QueryRows, predictions: Found, calibration: Calibration) -> pa.Table:
        """See `TaskKind.table`: `gold` and `predicted` are ids of documents, `correct` is the task's metric.

        `first_document` and `right_document` are the texts of the document put first and of the first relevant one.
        """
        ranked = [
            [self.collection.ids[number] for number in self._ranked(predictions, row).tolist()]
            for row in range(len(rows))
        ]
        texts = self.collection.texts_read()
        relevant = [[each for each, value in judged if value > 0] for judged in _judged(rows)]
        return pa.table(
            {
                "id": rows.ids,
                "query": rows.queries,
                "gold": [", ".join(ids) for ids in relevant],
                "predicted": [", ".join(ids[:_SHOWN]) for ids in ranked],
                "first_document": [texts[self._numbers[ids[0]]] if ids else "" for ids in ranked],
                "right_document": [
                    next((texts[self._numbers[each]] for each in ids if each in self._numbers), "") for ids in relevant
                ],
                "score": predictions.scores.max(axis=1, initial=-np.inf).astype(np.float64),
                "correct": self.statistics(rows, predictions, calibration)[
                    :, self.score_names.index(self.config.metric)
                ],
            }
        )

    def is_degenerate(self, rows: QueryRows, predictions: Found, calibration: Calibration) -> bool:
        """See `TaskKind.is_degenerate`: the same document comes first for every query."""
        return len(rows) > 1 and len(self.collection) > 1 and len(np.unique(predictions.documents[:, 0])) == 1

    def _search(
        self, model: nn.Module, encoded: EncodedSearch, machine: Machine, k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        index = self._index(model, encoded.documents, machine)
        return index.search(self.vectors(model, encoded.queries, machine), k)

    def _index(self, model: nn.Module, documents: Sequences, machine: Machine) -> VectorIndex:
        """Return the index of the collection under these weights; the latest is cached, so that all splits share it."""
        weights = f"{machine.precision} {digest_of_weights(model)}"
        if self._indexed is None or self._indexed[0] is not documents or self._indexed[1] != weights:
            self._indexed = None  # freed first, so that only one is in memory
            self._indexed = documents, weights, VectorIndex.of(self.vectors(model, documents, machine))
        return self._indexed[2]

    def _comparable(self, vectors: Tensor) -> Tensor:
        return F.normalize(vectors, dim=-1) if self.config.similarity == "cosine" else vectors

    def _ranked(self, predictions: Found, row: int) -> NDArray[np.int64]:
        """Return the indices of the documents found for a query, in the order of `ranking.trec_order`."""
        is_hit = predictions.documents[row] >= 0
        numbers, scores = predictions.documents[row][is_hit], predictions.scores[row][is_hit].astype(np.float32)
        return numbers[np.lexsort((-self._places_of_ids[numbers], -scores))]

    @property
    def _places_of_ids(self) -> NDArray[np.int64]:
        """Rank of each document's id among all ids in ascending order, [documents]."""
        if self._places is None:
            ids = self.collection.ids
            self._places = np.empty(len(ids), dtype=np.int64)
            self._places[sorted(range(len(ids)), key=ids.__getitem__)] = np.arange(len(ids))
        return self._places


def _judged(rows: QueryRows) -> list[list[tuple[str, int]]]:
    return [list(zip(*each, strict=True)) for each in zip(rows.document_ids, rows.relevances, strict=True)]


task_kind = Retrieval
