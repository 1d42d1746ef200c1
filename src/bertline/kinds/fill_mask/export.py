"""Model card of a task of the kind `fill_mask`."""

from __future__ import annotations

from bertline.export.usage import Usage
from bertline.finetuning.task_file import FinishedTask


def usage(finished: FinishedTask, *, pair: bool) -> Usage:
    """Return the usage of a model of this kind."""
    return Usage(
        what="Fills blanks in texts of its domain.",
        tag="fill-mask",
        pipeline=True,
        snippets=(
            'from transformers import pipeline\n\npipeline("fill-mask", model="NAME")("The word [MASK] is missing.")',
            'import bertline\n\nbertline.load("NAME").fill_mask("The word [MASK] is missing.", top_k=5)',
        ),
        limits=(),
    )
