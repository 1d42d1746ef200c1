"""Report of a task of the kind `classification`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertline.evaluation.error_html import label_block
from bertline.evaluation.formatting import counted


def error_blocks(errors: Sequence[dict[str, Any]], task_folder: Path) -> list[str]:
    """Return the HTML of errors."""
    return [label_block(error) for error in errors]


def about(labels: Sequence[str]) -> str:
    """Return a sentence on what the task asks for."""
    return f"Classification: which of the {counted(labels, 'label')} does a text, or a pair of texts, have?"


def row_measure(metric: str) -> str:
    """Return what the column `correct` of the predictions measures, in words."""
    return "the share of rows that are right"
