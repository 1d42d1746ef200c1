"""Retrieval with a dual encoder: query and documents are encoded separately by one encoder and compared as vectors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bertline.demo.config import DocsSearchSourceConfig
from bertline.demo.docstrings import ModuleDocs
from bertline.encoding.sequences import INDICES, INPUT_NAMES, Epochs, Sequences, encode_texts, outputs_of, tensors, unit
from bertline.foundation.errors import ArtifactError, DataError
from bertline.foundation.seeds import generator
from bertline.kinds.base import Batch, Calibration, LossOptions, Statistics, TaskKind
from bertline.kinds.inputs import require_texts, row_ids
from bertline.kinds.usage import Usage
from bertline.tasks.cells import one_line
from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.metrics import ranking
from bertline.tasks.search_data import search_splits
from bertline.tasks.source_config import BeirSourceConfig, SentencePairsSourceConfig
from bertline.tasks.stored_rows import COLLECTION, BuiltTask, Documents, QueryRows, SplitName, read_rows

if TYPE_CHECKING:
    from bertline.kinds.base import Baseline, BaselineInputs, Machine, TaskPredictor, Tensor, Tokenizer, nn
    from bertline.tasks.bm25 import Bm25

Numbers = NDArray[np.int64]
DEPTH = 1000
"""Number of documents kept in each query's ranking: the usual depth for trec_eval, over which MAP is computed."""
MINED = 30
"""Number of hard negatives mined for each query; training samples from them."""
MOST_DOCUMENTS = 100_000
"""Number of documents on which settings are tried if the collection is larger, as each setting needs an index."""
_SHOWN = 10
_K1S = (0.3, 0.6, 0.9, 1.2, 1.5, 2.0, 3.0)
_BS = (0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class RetrievalTaskConfig(BaseTaskConfig):
    """Retrieval of documents for a query; both are encoded separately (bi-encoder with shared weights)."""

    kind: Literal["retrieval"]
    source: DocsSearchSourceConfig | BeirSourceConfig | SentencePairsSourceConfig
    query_max_length: int
    """Maximum number of tokens of a query."""
    pooling: Literal["mean", "cls"]
    """Pooling of the token vectors of a text."""
    similarity: Literal["cosine", "dot"]
    """Similarity of query and document vectors."""
    temperature: float
    """Temperature of the in-batch softmax in training; similarities are divided by it."""
    hard_negatives: Literal["none", "bm25", "encoder"]
    """Source of hard negatives, mined before training: BM25, or the encoder that training starts from."""
    num_hard_negatives: int
    """Number of hard negatives per query of a batch."""
    query_prefix: str
    """Prefix of queries; see `document_prefix`."""
    document_prefix: str
    """Prefixes of queries and documents that some public checkpoints were trained with (`query: `, `passage: `)."""
    metric: Literal["ndcg@10", "mrr@10", "recall@100", "map"]
    """Metric on dev that selects trials; higher is better."""


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


@dataclass(frozen=True, slots=True)
class Found:
    """Ranking of documents for each of N queries."""

    documents: NDArray[np.int64]
    """Indices in the collection [N, K], best first, padded with -1."""
    scores: NDArray[np.float32]
    """Scores [N, K], descending, padded with -inf."""


class Hit(NamedTuple):
    """Retrieved document."""

    number: int
    """Index among the given documents, from 0."""
    score: float


class VectorIndex:
    """Exact search by inner product (the cosine, for unit vectors) in vectors [N, H] with FAISS (arXiv 2401.08281)."""

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        import faiss

        self._index = faiss.IndexFlatIP(vectors.shape[1])
        self._index.add(np.ascontiguousarray(vectors, dtype=np.float32))

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Find the vectors with the largest inner products with each query, in descending order.

        Returns:
            Indices of the vectors and their inner products, both [Q, min(k, N)].
        """
        scores, numbers = self._index.search(np.ascontiguousarray(queries, dtype=np.float32), min(k, len(self)))
        return numbers, scores


class Retrieval(TaskKind[QueryRows, EncodedSearch, Found]):
    """Finds documents for queries (Dense Passage Retrieval, arXiv 2004.04906, with shared weights).

    A task has one collection, which `read` loads from the task's folder; `use_collection` replaces it.
    """

    config_class = RetrievalTaskConfig
    rows_class = QueryRows
    head = "vectors"
    config: RetrievalTaskConfig
    score_names = ("ndcg@10", "mrr@10", "recall@100", "map")
    file_columns = (("query", "text"),)
    answers = (Hit,)
    output_schema = pa.schema({"document_ids": pa.list_(pa.string()), "scores": pa.list_(pa.float64())})
    asks = "Retrieval: find the documents of a collection that belong to a query."
    unsmoothed = "its targets are documents of a batch"

    def __init__(self, config: RetrievalTaskConfig, labels: Sequence[str]) -> None:
        super().__init__(config, labels)
        self._collection: Documents | None = None
        self._encoded: tuple[Tokenizer, Sequences] | None = None
        self._bm25: Bm25 | None = None
        self._indexed: tuple[object, str, VectorIndex] | None = None

    @staticmethod
    def build(name: str, config: RetrievalTaskConfig, modules: Iterable[ModuleDocs] = ()) -> BuiltTask:
        return search_splits(name, config, config.source, modules)

    def read(self, task_folder: Path, split: SplitName) -> QueryRows:
        if self._collection is None:
            self.use_collection(read_rows(task_folder, COLLECTION, Documents))
        return super().read(task_folder, split)

    def use_collection(self, documents: Documents) -> None:
        self._collection = documents
        self._numbers = {identity: number for number, identity in enumerate(documents.ids)}
        # Rank of each document's id among all ids in ascending order, [documents].
        self._places = np.empty(len(documents.ids), dtype=np.int64)
        self._places[sorted(range(len(documents.ids)), key=documents.ids.__getitem__)] = np.arange(len(documents.ids))
        self._encoded = self._bm25 = self._indexed = None

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
        from bertline.tasks.bm25 import Bm25

        if self._bm25 is None:
            self._bm25 = Bm25(self.collection.texts_read())
        return self._bm25

    # ---- the model

    def encode_queries(self, texts: Sequence[str], tokenizer: Tokenizer) -> Sequences:
        """Encode queries with their prefix, truncated to `query_max_length`."""
        prefixed = [self.config.query_prefix + text for text in texts]
        return encode_texts(prefixed, None, tokenizer, max_length=self.config.query_max_length)

    def encode_documents(self, documents: Documents, tokenizer: Tokenizer) -> Sequences:
        """Encode titles and texts of documents with their prefix, truncated to `max_length`."""
        prefixed = [self.config.document_prefix + text for text in documents.texts_read()]
        return encode_texts(prefixed, None, tokenizer, max_length=self.config.max_length)

    def encode(self, rows: QueryRows, tokenizer: Tokenizer) -> EncodedSearch:
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
        return np.concatenate([encoded.queries.lengths, encoded.documents.lengths])

    def prepared(self, model: nn.Module, encoded: EncodedSearch, rows: QueryRows, machine: Machine) -> EncodedSearch:
        """See `TaskKind.prepared`: mines hard negatives, excluding documents judged relevant."""
        if not self.config.num_hard_negatives or self.config.hard_negatives == "none":
            return encoded
        depth = MINED + max((len(documents) for documents in encoded.relevant), default=0)
        if self.config.hard_negatives == "bm25":
            ranked = [self.bm25.best(query, depth)[0] for query in rows.queries]
        else:
            ranked = list(self._search(model, encoded, machine, depth)[0])
        mined = [
            candidates[~np.isin(candidates, relevant)][:MINED]
            for candidates, relevant in zip(ranked, encoded.relevant, strict=True)
        ]
        return replace(encoded, hard_negatives=mined)

    def num_cut(self, encoded: EncodedSearch) -> int:
        return int(encoded.queries.cut.sum())

    def num_cut_documents(self, encoded: EncodedSearch) -> int:
        return int(encoded.documents.cut.sum())

    def training_batches(self, encoded: EncodedSearch, *, batch_size: int, seed: int) -> Epochs:
        most = self.config.num_hard_negatives
        return pair_batches(encoded, batch_size=batch_size, num_hard_negatives=most, seed=seed)

    def training_outputs(self, model: nn.Module, batch: Batch) -> list[Tensor]:
        return [
            self._comparable(model(*(batch[f"{side}_{name}"] for name in INPUT_NAMES)).float())
            for side in ("query", "document")
        ]

    def soft_targets(self, model: nn.Module, encoded: EncodedSearch, machine: Machine) -> NDArray[np.float32]:
        """Return the vectors of all queries, then of all documents, with the size of the teacher's."""
        return np.concatenate([self.vectors(model, part, machine) for part in (encoded.queries, encoded.documents)])

    def soft_loss(self, outputs: list[Tensor], teacher: Tensor, batch: Batch, temperature: float) -> Tensor:
        """Compute the mean distance from the teacher's vectors or, where those have another size, the divergence from
        its softmax over the documents of the batch (as in SEED, arXiv 2101.04731, section 3.2)."""
        import torch

        from bertline.modeling.losses import softmax_divergence, vector_distance

        queries, documents = outputs
        if teacher.shape[1] == queries.shape[1]:
            return vector_distance(torch.cat(outputs), teacher).mean()
        similarities = queries @ documents.T / self.config.temperature
        theirs = teacher[: len(queries)] @ teacher[len(queries) :].T / self.config.temperature
        return softmax_divergence(similarities, theirs, temperature).mean()

    def hard_loss(self, model: nn.Module, outputs: list[Tensor], batch: Batch, options: LossOptions) -> Tensor:
        """Compute softmax cross-entropy over the documents of the batch but for others that are relevant, too (arXiv
        2004.04906, section 3.2)."""
        import torch.nn.functional as F

        queries, documents = outputs
        similarities = queries @ documents.T / self.config.temperature
        return F.cross_entropy(similarities.masked_fill(batch["also_relevant"], float("-inf")), batch["targets"])

    def vectors(self, model: nn.Module, sequences: Sequences, machine: Machine) -> NDArray[np.float32]:
        """Compute the vector of each sequence, [N, H]; unit vectors if the similarity is cosine."""
        return outputs_of(model, sequences, machine, model.bert.config.hidden_size, read=self._comparable)

    def predict(self, model: nn.Module, encoded: EncodedSearch, machine: Machine) -> Found:
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
                ranking.ranked_precision(ranked, num_relevant),
            )
        return values

    def table(self, rows: QueryRows, predictions: Found, calibration: Calibration) -> pa.Table:
        """See `TaskKind.table`: `gold` and `predicted` are ids of documents, `correct` is the task's metric.

        `first_document` and `right_document` are the texts of the document put first and of the first relevant one.
        """
        all_ids, texts = self.collection.ids, self.collection.texts_read()
        ranked = [[all_ids[number] for number in self._ranked(predictions, row).tolist()] for row in range(len(rows))]
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
                "correct": self.row_scores(rows, predictions, calibration),
            }
        )

    def is_degenerate(self, rows: QueryRows, predictions: Found, calibration: Calibration) -> bool:
        return len(rows) > 1 and len(self.collection) > 1 and len(np.unique(predictions.documents[:, 0])) == 1

    def _search(
        self, model: nn.Module, encoded: EncodedSearch, machine: Machine, k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Search the collection under these weights; the latest index is kept, so that all splits share it."""
        from bertline.modeling.weight_files import digest_of_weights

        documents, weights = encoded.documents, f"{machine.precision} {digest_of_weights(model)}"
        if self._indexed is None or self._indexed[0] is not documents or self._indexed[1] != weights:
            self._indexed = None  # freed first, so that only one is in memory
            self._indexed = documents, weights, VectorIndex(self.vectors(model, documents, machine))
        return self._indexed[2].search(self.vectors(model, encoded.queries, machine), k)

    def _comparable(self, vectors: Tensor) -> Tensor:
        import torch.nn.functional as F

        return F.normalize(vectors, dim=-1) if self.config.similarity == "cosine" else vectors

    def _ranked(self, predictions: Found, row: int) -> NDArray[np.int64]:
        """Return the indices of the documents found for a query, in the order of `ranking.trec_order`."""
        is_hit = predictions.documents[row] >= 0
        numbers, scores = predictions.documents[row][is_hit], predictions.scores[row][is_hit].astype(np.float32)
        return numbers[np.lexsort((-self._places[numbers], -scores))]

    # ---- baselines, answers to users, report

    def baselines(self, inputs: BaselineInputs) -> list[Baseline]:
        from bertline.baselines.vectors import TextVectors, rankings_by_vectors
        from bertline.linear.model import one_thread

        texts = self.collection.texts_read()

        def rankings(vectors: TextVectors, several: Sequence[QueryRows]) -> list[Found]:
            """Rank by the cosine, after subtracting the mean vector of the documents."""
            of_documents = vectors(texts)
            mean = of_documents.mean(axis=0)
            with one_thread():
                index = VectorIndex(unit(of_documents - mean))
                return [Found(*index.search(unit(vectors(rows.queries) - mean), DEPTH)) for rows in several]

        return [tuned_bm25(inputs), *rankings_by_vectors(inputs, rankings)]

    def serve(
        self, predictor: TaskPredictor, queries: Sequence[str], documents: Sequence[str], top_k: int = 10
    ) -> list[list[Hit]]:
        """Return the `top_k` documents for each query, best first; document ids are their indices."""
        index = VectorIndex(self.document_vectors(predictor, documents))
        return best_hits(index, self.query_vectors(predictor, queries), row_ids(len(index)), top_k)

    def query_vectors(self, predictor: TaskPredictor, queries: Sequence[str]) -> NDArray[np.float32]:
        read = [*map(one_line, require_texts(queries, "queries"))]
        encoded = self.encode_queries(read, predictor.tokenizer)
        predictor.num_cut += int(encoded.cut.sum())
        return self.vectors(predictor.model, encoded, predictor.machine)

    def document_vectors(self, predictor: TaskPredictor, documents: Sequence[str]) -> NDArray[np.float32]:
        """Encode documents of a user as vectors [n, H]; unit vectors if the similarity is cosine.

        Raises:
            DataError: There are no documents.
        """
        texts = [*map(one_line, require_texts(documents, "documents"))]
        if not texts:
            raise DataError("documents is empty; give at least one to search in.")
        rows = Documents(row_ids(len(texts)), [""] * len(texts), texts)
        encoded = self.encode_documents(rows, predictor.tokenizer)
        predictor.num_documents_cut += int(encoded.cut.sum())
        return self.vectors(predictor.model, encoded, predictor.machine)

    def file_outputs(self, predictor: TaskPredictor, *inputs: list[Any]) -> list[dict[str, Any]]:
        raise DataError("a retrieval model searches documents: name them with documents=FILE.")

    def usage(self, calibration: Calibration, *, pair: bool) -> Usage:
        from bertline.modeling.text_vectors import VectorSettings

        config = self.config
        prompts = bool(config.query_prefix or config.document_prefix)
        query, document = (', prompt_name="query"', ', prompt_name="document"') if prompts else ("", "")
        return Usage(
            what="Turns queries and documents into vectors, so that the documents for a query lie near it.",
            tag="sentence-similarity",
            pipeline=True,
            snippets=(
                'import bertline\n\nmodel = bertline.load("NAME")\n'
                'model.search(["a question"], ["A document.", "Another one."], top_k=1)\n'
                'model.embed(["A document."], role="document")  # one vector each',
                "from sentence_transformers import SentenceTransformer\n\n"
                '# "NAME" is the folder that this file lies in.\nmodel = SentenceTransformer("NAME")\n'
                f'model.similarity(model.encode(["a question"]{query}), model.encode(["A document."]{document}))',
            ),
            vectors=VectorSettings(
                pooling=config.pooling,
                similarity=config.similarity,
                prompts={"query": config.query_prefix, "document": config.document_prefix},
            ),
            limits=("It finds what is nearest, also where no document has the answer.",),
        )


def pair_batches(encoded: EncodedSearch, *, batch_size: int, num_hard_negatives: int, seed: int) -> Epochs:
    """Return batches of (query, relevant document) pairs; each epoch has every pair once, in a new order.

    Each query of a batch adds up to `num_hard_negatives` of its hard negatives, redrawn each epoch. A document occurs
    once in a batch. Pairs are not sorted by length: the model could then tell documents apart by length alone.
    """
    sizes = [len(documents) for documents in encoded.relevant]
    query_of = np.repeat(np.arange(len(sizes)), sizes)
    document_of = np.concatenate([np.zeros(0, dtype=np.int64), *encoded.relevant])

    def batch(pairs: NDArray[np.integer], random: np.random.Generator) -> Batch:
        queries, positives = query_of[pairs], document_of[pairs]
        known = [encoded.hard_negatives[query] for query in queries]
        negatives = [random.choice(each, min(num_hard_negatives, len(each)), replace=False) for each in known]
        documents, places = np.unique(np.concatenate([positives, *negatives]), return_inverse=True)
        relevant = np.stack([np.isin(documents, encoded.relevant[query]) for query in queries])
        targets = places[: len(pairs)]
        relevant[np.arange(len(pairs)), targets] = False
        return {
            **tensors(**{INDICES: np.concatenate([queries, len(encoded.queries) + documents])}),
            **{f"query_{name}": tensor for name, tensor in encoded.queries.batch(queries).items()},
            **{f"document_{name}": tensor for name, tensor in encoded.documents.batch(documents).items()},
            **tensors(targets=targets.astype(np.int64), also_relevant=relevant),
        }

    def batches(epoch: int) -> Iterator[Batch]:
        random = generator(seed, "order", epoch)
        order = random.permutation(len(query_of))
        for start in range(0, len(order), batch_size):
            yield batch(order[start : start + batch_size], random)

    return Epochs(len(query_of), batch_size, batches)


def _judged(rows: QueryRows) -> list[list[tuple[str, int]]]:
    return [list(zip(*each, strict=True)) for each in zip(rows.document_ids, rows.relevances, strict=True)]


def best_hits(index: VectorIndex, queries: NDArray[np.float32], ids: Sequence[str], top_k: int) -> list[list[Hit]]:
    """Return the best documents of an index for each query, best first, with ties ranked as in evaluation.

    At least as many documents are looked up as evaluation ranks, since an index that is asked for fewer may drop any of
    those with equal scores.

    Among equal scores, the id (of `ids`) that is greater as a string comes first (`trec_order`).
    """
    hits = []
    for numbers, scores in zip(*index.search(queries, max(top_k, DEPTH)), strict=True):
        order = ranking.trec_order([ids[number] for number in numbers], scores)[:top_k]
        hits.append([Hit(int(numbers[place]), float(scores[place])) for place in order])
    return hits


def tuned_bm25(inputs: BaselineInputs) -> Baseline:
    """Tune BM25 over the collection on dev: first what counts as a word, then k1, then b.

    In a large collection, settings are tried on the first documents and those that dev judges.
    """
    from bertline.tasks.bm25 import ANALYSES, K1, B

    collection = inputs.kind.collection
    texts = collection.texts_read()
    wanted = {document for documents in inputs.dev.document_ids for document in documents}
    tried = np.array([n for n, each in enumerate(collection.ids) if n < MOST_DOCUMENTS or each in wanted], np.int64)
    tried_texts = [texts[number] for number in tried]

    def on_dev(settings: dict[str, Any]) -> Found:
        rankings = found_by(bm25_of(tried_texts, settings), inputs.dev)
        return Found(np.where(rankings.documents < 0, -1, tried[rankings.documents]), rankings.scores)

    best: dict[str, Any] = {"terms": "words", "k1": K1, "b": B}
    for name, values in (("terms", ANALYSES), ("k1", _K1S), ("b", _BS)):
        best = inputs.best([best, *({**best, name: value} for value in values)], on_dev)
    index = bm25_of(texts, best)
    return inputs.baseline("bm25", "BM25", lambda rows: found_by(index, rows), best)


def bm25_of(texts: list[str], settings: Mapping[str, Any]) -> Bm25:
    """Return BM25 over texts with the settings that dev chose."""
    from bertline.tasks.bm25 import Bm25

    return Bm25(texts, k1=settings["k1"], b=settings["b"], analysis=settings["terms"])


def found_by(bm25: Bm25, rows: QueryRows) -> Found:
    """Return the ranking for each query, of documents that share a term with it."""
    width = min(DEPTH, bm25.num_texts)
    documents: NDArray[np.int64] = np.full((len(rows), width), -1, dtype=np.int64)
    scores: NDArray[np.float32] = np.full((len(rows), width), -np.inf, dtype=np.float32)
    for row, query in enumerate(rows.queries):
        numbers, values = bm25.best(query, width)
        documents[row, : len(numbers)], scores[row, : len(numbers)] = numbers, values
    return Found(documents, scores)
