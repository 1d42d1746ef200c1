"""Configuration of tracking."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackingConfig:
    """Where runs are recorded. No stage depends on it."""

    enabled: bool
    uri: str
    """`sqlite:///runs/mlflow.db`, or any server's address."""
    experiment_name: str
    log_text: bool
    """Whether the user's own text (sample documents, film strip, report) may be sent to a server that is not local."""
    studies_url: str
    """Where Optuna keeps the studies of all tasks: `sqlite:///runs/studies.db`, or PostgreSQL
    (`postgresql://HOST/DATABASE`), which several machines may share."""
    system_metrics: bool
    system_metrics_every_s: float
