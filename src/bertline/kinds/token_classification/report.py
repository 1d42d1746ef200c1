"""Report of a task of the kind `token_classification`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bertline.evaluation.html import counted, escape, label_block, quote, sureness


def error_block(error: dict[str, Any]) -> str:
    """Return the HTML of an error."""
    gold, predicted = str(error["gold"]).split(), str(error["predicted"]).split()
    words = str(error.get("text", "")).split(" ")
    if not len(words) == len(gold) == len(predicted):
        return label_block(error)
    lines = []
    for name, tags in (("right", gold), ("given", predicted)):
        spans = " ".join(_word(word, tag, other) for word, tag, other in zip(words, tags, gold, strict=True))
        lines.append(f'<p class="tagged"><small>{name}</small> {spans}</p>')
    return quote("".join(lines), sureness(error).strip("()"))


def _word(word: str, tag: str, gold: str) -> str:
    if tag == "O":
        missed = ' class="missed"' if gold != "O" else ""
        return f"<span{missed}>{escape(word)}</span>"
    kind = tag.partition("-")[2]
    css = "right" if tag == gold else "wrong"
    label = f"<small>{escape(kind)}</small>" if tag.startswith("B") else ""
    return f'<mark class="{css}">{escape(word)}{label}</mark>'


def about(labels: Sequence[str]) -> str:
    """Return a sentence on what the task asks for."""
    types = [tag.removeprefix("B-") for tag in labels if tag.startswith("B-")]
    return f"Token classification: mark the words that form entities of the {counted(types, 'type')}."


def row_measure(metric: str) -> str:
    """Return what the column `correct` of the predictions measures, in words."""
    return "the share of words with the right tag"
