"""Configuration of the export stage."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportConfig:
    """What leaves the house."""

    model_name: str
    """Name of the encoder in cards and in MLflow's registry; tasks are registered as NAME-TASK."""
    license: str
    """Of the weights, for the model card (an SPDX identifier, or `other`)."""
    language: str
    register: bool
    """Register versions in MLflow."""
    alias: str
    """The alias the new versions get."""
    logits_tolerance: float
    """Largest absolute difference from transformers' logits that passes the check."""
