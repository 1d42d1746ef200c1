"""Configuration of a task of the kind `summarisation`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.source_config import SummariesSourceConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class SummarisationTaskConfig(BaseTaskConfig):
    """Extractive summarisation: select sentences; each sentence has its own [CLS] (BertSum, arXiv 1903.10318)."""

    kind: Literal["summarisation"]
    source: SummariesSourceConfig
    num_sentences: int
    """Number of sentences of a summary."""
    metric: Literal["rouge1", "rouge2", "rougeL"]
    """Metric on dev that selects trials; higher is better."""

    def __post_init__(self) -> None:
        BaseTaskConfig.__post_init__(self)
        if self.num_sentences < 1:
            raise ValueError(f"num_sentences must be at least 1, found {self.num_sentences}")
        if self.max_length < 3:
            raise ValueError(f"max_length must leave room for [CLS], a token and [SEP], found {self.max_length}")
