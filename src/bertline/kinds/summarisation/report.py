"""Report of a task of the kind `summarisation`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bertline.evaluation.html import CHARACTERS, escape, plain, quote, shortened


def error_block(error: dict[str, Any]) -> str:
    """Return the HTML of an error."""
    blocks = f"<p><small>summary</small> {escape(shortened(plain(error['gold']), CHARACTERS))}</p>"
    blocks += f"<p><small>chosen</small> {escape(shortened(plain(error['predicted']), CHARACTERS))}</p>"
    return quote(blocks, "")


def about(labels: Sequence[str]) -> str:
    """Return a sentence on what the task asks for."""
    return "Extractive summarisation: choose the sentences of a document that make the best summary."


def row_measure(metric: str) -> str:
    """Return what the column `correct` of the predictions measures, in words."""
    return "ROUGE-1"
