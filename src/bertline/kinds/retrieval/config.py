"""Configuration of a task of the kind `retrieval`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bertline.demo.config import DocsSearchSourceConfig
from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.source_config import (
    BeirSourceConfig,
    SentencePairsSourceConfig,
    SmartSourceConfig,
    TrecSourceConfig,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RetrievalTaskConfig(BaseTaskConfig):
    """Retrieval of documents for a query; both are encoded separately (bi-encoder with shared weights)."""

    kind: Literal["retrieval"]
    source: DocsSearchSourceConfig | BeirSourceConfig | SmartSourceConfig | TrecSourceConfig | SentencePairsSourceConfig
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
