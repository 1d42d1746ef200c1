"""Report of a task of the kind `tagging`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bertline.evaluation.html import counted, escape, quote, sureness


def error_block(error: dict[str, Any]) -> str:
    """Return the HTML of an error: the words, and at each wrong one its tag and the tag that was given."""
    gold, predicted = str(error["gold"]).split(" "), str(error["predicted"]).split(" ")
    shown = zip(error["words"], gold, predicted, strict=False)  # long lists of words are cut
    return quote(f'<p class="tagged">{" ".join(_word(*word) for word in shown)}</p>', sureness(error).strip("()"))


def _word(word: str, gold: str, predicted: str) -> str:
    if gold == predicted:
        return f"<span>{escape(word)}</span>"
    return f'<mark class="wrong">{escape(word)}<small>{escape(predicted)}, is {escape(gold)}</small></mark>'


def about(labels: Sequence[str]) -> str:
    """Return a sentence on what the task asks for."""
    return f"Tagging: which of the {counted(labels, 'tag')} does each word have?"


def row_measure(metric: str) -> str:
    """Return what the column `correct` of the predictions measures, in words."""
    return "the share of words with the right tag"
