"""Report of a task of the kind `regression`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bertline.evaluation.html import inputs_of, plain, quote


def error_block(error: dict[str, Any]) -> str:
    """Return the HTML of an error."""
    return quote(inputs_of(error), f"is {plain(error['gold'])}, taken for {plain(error['predicted'])}")


def about(labels: Sequence[str]) -> str:
    """Return a sentence on what the task asks for."""
    return "Regression: which number does a text, or a pair of texts, have?"


def row_measure(metric: str) -> str:
    """Return what the column `correct` of the predictions measures, in words."""
    return "1 minus the distance from the right number, as a share of the scale,"
