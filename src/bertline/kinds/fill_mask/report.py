"""Report of a task of the kind `fill_mask`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bertline.evaluation.html import inputs_of, quote, sureness

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
