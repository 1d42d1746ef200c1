"""Configuration of the evaluate stage."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class OverlapConfig:
    """How the tasks' test sets are compared with the pretraining corpus, by runs of n words that stand in both."""

    min_ngram: int
    max_ngram: int
    """n is the 5th percentile of a test set's rows in words, kept between these two."""
    flag: float
    """A test set more of whose rows than this share are touched is flagged beside its score."""

    def __post_init__(self) -> None:
        if not 1 <= self.min_ngram <= self.max_ngram:
            raise ValueError(f"needs 1 <= min_ngram <= max_ngram, found {self.min_ngram} and {self.max_ngram}")
        if not 0 <= self.flag <= 1:
            raise ValueError(f"flag is a share between 0 and 1, found {self.flag}")


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluateConfig:
    """What the report shows."""

    title: str
    num_documents: int
    """Sample passages shown with their pieces."""
    embed_plot_points: int
    """Test passages drawn in the picture of the vector space."""
    overlap: OverlapConfig
