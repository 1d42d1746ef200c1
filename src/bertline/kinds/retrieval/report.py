"""Report of a task of the kind `retrieval`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bertline.evaluation.html import metric_name, ranking_block


def error_block(error: dict[str, Any]) -> str:
    """Return the HTML of an error."""
    return ranking_block(error)


def about(labels: Sequence[str]) -> str:
    """Return a sentence on what the task asks for."""
    return "Retrieval: find the documents of a collection that belong to a query."


def row_measure(metric: str) -> str:
    """Return what the column `correct` of the predictions measures, in words."""
    return metric_name(metric)
