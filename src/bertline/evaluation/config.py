"""Configuration of the stage `evaluate`."""

from dataclasses import dataclass

from bertline.foundation.checked import Checked, Fraction, PositiveInt


@dataclass(frozen=True, kw_only=True, slots=True)
class OverlapConfig(Checked):
    """Settings of the overlap of the tasks' test sets with the pretraining corpus, measured by word n-grams."""

    min_ngram: PositiveInt
    """Lower bound of n; see `max_ngram`."""
    max_ngram: int
    """Bounds of n, which is the 5th percentile of the row lengths of a test set in words."""
    flag: Fraction
    """Fraction of rows with overlap above which a test set is flagged next to its score."""

    def check(self) -> None:
        if self.min_ngram > self.max_ngram:
            raise ValueError(f"min_ngram must not be above max_ngram, found {self.min_ngram} and {self.max_ngram}")


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluateConfig:
    """Content of the report."""

    title: str
    """Title of the report."""
    preset: str
    """Name of the preset, for the report; each file of `conf/experiment` sets its own."""
    overlap: OverlapConfig
