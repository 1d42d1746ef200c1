"""Configuration of the stage `evaluate`."""

from dataclasses import dataclass

from bertline.foundation.checked import Fraction


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluateConfig:
    """Content of the report."""

    title: str
    """Title of the report."""
    preset: str
    """Name of the preset, for the report; each file of `conf/experiment` sets its own."""
    overlap_flag: Fraction
    """Fraction of rows with overlap with the pretraining corpus above which a test set is flagged next to its score."""
