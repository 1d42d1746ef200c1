"""Report of a task of the kind `regression`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertline.evaluation.error_html import inputs_of, plain, quote


def _number(error: dict[str, Any]) -> str:
    return quote(inputs_of(error), f"is {plain(error['gold'])}, taken for {plain(error['predicted'])}")


def error_blocks(errors: Sequence[dict[str, Any]], task_folder: Path) -> list[str]:
    """Return the HTML of errors."""
    return [_number(error) for error in errors]


def about(labels: Sequence[str]) -> str:
    """Return a sentence on what the task asks for."""
    return "Regression: which number does a text, or a pair of texts, have?"


def row_measure(metric: str) -> str:
    """Return what the column `correct` of the predictions measures, in words."""
    return "1 minus the distance from the right number, as a share of the scale,"
