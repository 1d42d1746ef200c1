"""Settings of the quality of a corpus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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


@dataclass(frozen=True, kw_only=True, slots=True)
class CleaningConfig:
    """What is changed in text, or found in it, before it is split into sentences."""

    fix_mojibake: bool
    """Whether text that was decoded with a wrong encoding ("schÃ¶n") is decoded again, where ftfy finds it."""
    join_hyphens: bool
    """Whether words that a hyphen divides at the end of a line are joined; the corpus says which are compounds."""
    markup: Literal["keep", "say", "remove", "drop"]
    """Left-over markup (templates, tags, entities, placeholders, empty brackets): not looked for, counted, removed, or
    a reason to drop the document."""
    repeated_lines: int | None
    """Number of documents from which a line that they share is dropped, wherever it occurs; null keeps all."""

    def __post_init__(self) -> None:
        if self.repeated_lines is not None and self.repeated_lines < 2:
            raise ValueError(
                "repeated_lines is a number of documents, at least 2, or null to keep all lines; found "
                f"{self.repeated_lines}"
            )

    @property
    def is_active(self) -> bool:
        """Whether anything is looked at."""
        return self.fix_mojibake or self.markup != "keep" or self.learns

    @property
    def learns(self) -> bool:
        """Whether the corpus is read beforehand."""
        return self.join_hyphens or self.repeated_lines is not None


NO_CLEANING = CleaningConfig(fix_mojibake=False, join_hyphens=False, markup="keep", repeated_lines=None)
