"""Report of a task of the kind `summarisation`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertline.evaluation.error_html import CHARACTERS, plain, quote
from bertline.evaluation.formatting import escape, shortened


def _summary(error: dict[str, Any]) -> str:
    blocks = f"<p><small>summary</small> {escape(shortened(plain(error['gold']), CHARACTERS))}</p>"
    blocks += f"<p><small>chosen</small> {escape(shortened(plain(error['predicted']), CHARACTERS))}</p>"
    return quote(blocks, "")


def error_blocks(errors: Sequence[dict[str, Any]], task_folder: Path) -> list[str]:
    """Return the HTML of errors."""
    return [_summary(error) for error in errors]


def about(labels: Sequence[str]) -> str:
    """Return a sentence on what the task asks for."""
    return "Extractive summarisation: choose the sentences of a document that make the best summary."


def row_measure(metric: str) -> str:
    """Return what the column `correct` of the predictions measures, in words."""
    return "ROUGE-1"
