"""Report and model card of a task of the kind `summarisation`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bertline.evaluation.html import CHARACTERS, escape, plain, quote, shortened
from bertline.export.usage import Usage
from bertline.finetuning.task_file import FinishedTask


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


def usage(finished: FinishedTask, *, pair: bool) -> Usage:
    """Return the usage of a model of this kind."""
    config = finished.kind.config
    return Usage(
        what=f"Sums a document up by {config.num_sentences} of its own sentences.",
        tag="summarization",
        pipeline=False,
        snippets=('import bertline\n\nbertline.load("NAME").predict(["A long document. With many sentences."])',),
        limits=(
            "A summary has whole sentences of the document, nothing else: what they refer to may be left out.",
            "Each sentence is scored from its own [CLS] (arXiv 1903.10318), which only bertline puts there.",
        ),
    )
