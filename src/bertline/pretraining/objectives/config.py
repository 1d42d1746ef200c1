"""Configuration of the pretraining objectives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class MlmObjectiveConfig:
    """Masked language model on full sentences, without sentence pairs (RoBERTa, arXiv 1907.11692, section 4.2)."""

    num_segments: ClassVar[int] = 1
    """Number of segments of the examples that it learns from."""
    examples: ClassVar[str] = "full_sentences"
    """Such examples, as a choice of the group `examples`."""
    with_pooler: ClassVar[bool] = False
    """Whether a head reads the pooler."""

    kind: Literal["mlm"]


@dataclass(frozen=True, kw_only=True, slots=True)
class MlmNspObjectiveConfig:
    """Masked language model plus next sentence prediction (paper, section 3.1)."""

    num_segments: ClassVar[int] = 2
    examples: ClassVar[str] = "sentence_pairs"
    with_pooler: ClassVar[bool] = True

    kind: Literal["mlm_nsp"]
    nsp_weight: float
    """Weight of the NSP loss relative to the MLM loss; the paper adds the two (1.0)."""


ObjectiveConfig = MlmObjectiveConfig | MlmNspObjectiveConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class LearningMargins:
    """Margins by which the metrics of an objective must beat their baselines to count as learning."""

    entropy_margin: float
    """Nats by which the MLM loss must be below the unigram entropy to count as learning from context."""
    nsp_margin: float
    """Margin above chance at which the NSP accuracy counts as learning; proportionally less if chance is above 0.5."""
