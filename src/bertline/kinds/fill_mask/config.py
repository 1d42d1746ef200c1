"""Configuration of a task of the kind `fill_mask`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.source_config import PlainTextSourceConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class FillMaskTaskConfig(BaseTaskConfig):
    """Masked language modelling on the user's text: fine-tunes and scores the pretraining head."""

    kind: Literal["fill_mask"]
    source: PlainTextSourceConfig
    top_k: int
    """Number of guesses among which the token must be, for `topk_accuracy`."""
    mask_prob: float
    """Fraction of the tokens masked in training. Scoring masks each token once, one at a time."""
    max_scored_tokens: int | None
    """Maximum number of tokens scored per row, with one forward pass each; None scores all."""
    metric: Literal["top1_accuracy", "topk_accuracy", "negative_log_perplexity"]
    """Metric on dev that selects trials; higher is better."""

    def __post_init__(self) -> None:
        # Not super(): `slots=True` creates a new class, and zero-argument super() refers to the original one.
        BaseTaskConfig.__post_init__(self)
        for name in ("top_k", "max_scored_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, found {value}")
        if not 0 < self.mask_prob < 1:
            raise ValueError(f"mask_prob must be above 0 and below 1, found {self.mask_prob}")
