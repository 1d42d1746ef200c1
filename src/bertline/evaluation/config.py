"""Configuration of the evaluate stage."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluateConfig:
    """What the report shows."""

    title: str
    num_documents: int
    """Sample passages shown with their pieces."""
    embed_plot_points: int
    """Test passages drawn in the picture of the vector space."""
