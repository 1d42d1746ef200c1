"""Configuration of a task of the kind `regression`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.source_config import HubSourceConfig, TableSourceConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class RegressionTaskConfig(BaseTaskConfig):
    """Regression of a number for a passage or, more often, of the similarity of two passages."""

    kind: Literal["regression"]
    source: TableSourceConfig | HubSourceConfig
    low: float
    """Lowest number of the scale; see `high`."""
    high: float
    """Bounds of the scale (STS-B: 0 to 5). A row with a number outside it is invalid. Infinite for a checkpoint from
    elsewhere, whose output is the number itself."""
    head: Literal["linear", "cosine"]
    """`linear`: a linear layer on [CLS] of both texts in one sequence. `cosine`: cosine similarity of the pooled
    vectors of separately encoded texts."""
    pooling: Literal["mean", "cls"]
    """Pooling of the `cosine` head."""
    metric: Literal["pearson", "spearman"]
    """Metric on dev that selects trials; higher is better."""

    def __post_init__(self) -> None:
        BaseTaskConfig.__post_init__(self)
        if not self.low < self.high:
            raise ValueError(f"low must be below high, found {self.low} and {self.high}")
        if self.head == "cosine" and self.source.text_pair_column is None:
            raise ValueError("head cosine compares two texts; name source.text_pair_column, or take head: linear")
        if getattr(self.source, "label_separator", None) is not None:
            raise ValueError("source.label_separator is for several labels per row; a regression task has one number")
