"""Settings of the quality of a corpus."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class NearDuplicatesConfig:
    """Removal of documents that are nearly equal to an earlier one."""

    threshold: float | None
    """Jaccard similarity of word n-grams from which the later document is dropped, in (0, 1]; null keeps all."""
    ngram: int
    """Words of an n-gram."""

    def __post_init__(self) -> None:
        if self.threshold is not None and not 0 < self.threshold <= 1:
            raise ValueError(f"threshold must be in (0, 1], or null to keep near duplicates; found {self.threshold}")
        if self.ngram < 1:
            raise ValueError(f"ngram must be at least 1, found {self.ngram}")


KEEP_NEAR_DUPLICATES = NearDuplicatesConfig(threshold=None, ngram=3)
