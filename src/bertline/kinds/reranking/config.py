"""Configuration of a task of the kind `reranking`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bertline.demo.config import DocsSearchSourceConfig
from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.source_config import AnswersSourceConfig, BeirSourceConfig, SmartSourceConfig, TrecSourceConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class RerankingTaskConfig(BaseTaskConfig):
    """Re-ranking of candidates; query and candidate are encoded together (cross-encoder)."""

    kind: Literal["reranking"]
    source: AnswersSourceConfig | DocsSearchSourceConfig | BeirSourceConfig | SmartSourceConfig | TrecSourceConfig
    num_candidates: int
    """Number of candidates per query from a collection: the first BM25 results. A table of answers has its own."""
    num_negatives: int
    """Number of negatives per positive candidate in training; 0 uses all."""
    metric: Literal["map", "mrr", "ndcg@10"]
    """Metric on dev that selects trials; higher is better."""
