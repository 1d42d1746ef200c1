"""Report of a task of the kind `classification`."""

from __future__ import annotations

from collections.abc import Sequence

from bertline.evaluation.html import counted, label_block

error_block = label_block


def about(labels: Sequence[str]) -> str:
    """Return a sentence on what the task asks for."""
    return f"Classification: which of the {counted(labels, 'label')} does a text, or a pair of texts, have?"


def row_measure(metric: str) -> str:
    """Return what the column `correct` of the predictions measures, in words."""
    return "the share of rows that are right"
