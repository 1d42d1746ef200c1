"""Configuration of the pretraining objectives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class MlmNspObjectiveConfig:
    """Masked language model plus next sentence prediction (paper, section 3.1)."""

    kind: Literal["mlm_nsp"]
    nsp_weight: float
    """Weight of the NSP loss relative to the MLM loss; the paper adds the two (1.0)."""


ObjectiveConfig = MlmNspObjectiveConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class LearningMargins:
    """Margins by which the metrics of an objective must beat their baselines to count as learning."""

    entropy_margin: float
    """Nats by which the MLM loss must be below the unigram entropy to count as learning from context."""
    nsp_margin: float
    """Margin above chance at which the NSP accuracy counts as learning; proportionally less if chance is above 0.5."""
