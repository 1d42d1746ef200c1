"""Report of a task of the kind `retrieval`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertline.evaluation.error_html import ranking_block
from bertline.evaluation.formatting import metric_name


def error_blocks(errors: Sequence[dict[str, Any]], task_folder: Path) -> list[str]:
    """Return the HTML of errors."""
    return [ranking_block(error) for error in errors]


def about(labels: Sequence[str]) -> str:
    """Return a sentence on what the task asks for."""
    return "Retrieval: find the documents of a collection that belong to a query."


def row_measure(metric: str) -> str:
    """Return what the column `correct` of the predictions measures, in words."""
    return metric_name(metric)
