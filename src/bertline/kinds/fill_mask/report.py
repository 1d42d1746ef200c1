"""Report and model card of a task of the kind `fill_mask`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bertline.evaluation.html import inputs_of, quote, sureness
from bertline.export.usage import Usage
from bertline.finetuning.task_file import FinishedTask

_BLANKS = 8


def error_block(error: dict[str, Any]) -> str:
    """Return the HTML of an error."""
    pairs = zip(str(error["gold"]).split(), str(error["predicted"]).split(), strict=False)
    wrong = [f"{guess} for {token}" for token, guess in pairs if guess != token]
    more = f" and {len(wrong) - _BLANKS} more" if len(wrong) > _BLANKS else ""
    return quote(inputs_of(error), f"filled in {', '.join(wrong[:_BLANKS])}{more} {sureness(error)}")


def about(labels: Sequence[str]) -> str:
    """Return a sentence on what the task asks for."""
    return "Fill-mask: which token belongs in a blank? The encoder is scored as it was pretrained."


def row_measure(metric: str) -> str:
    """Return what the column `correct` of the predictions measures, in words."""
    return "the share of blanks filled right"


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
