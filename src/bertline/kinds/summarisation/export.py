"""Model card of a task of the kind `summarisation`."""

from __future__ import annotations

from bertline.export.usage import Usage
from bertline.finetuning.task_file import FinishedTask


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
