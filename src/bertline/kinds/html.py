"""Words and HTML of a task's report: what it asks for, and its errors."""

from html import escape
from typing import Any

from bertline.foundation.formats import shortened

_NOT_INPUTS = ("id", "gold", "predicted", "score", "correct", "words")


def label_block(error: dict[str, Any]) -> str:
    """Return the HTML of an error of a classifier."""
    note = f"is {plain(error['gold'])}, taken for {plain(error['predicted'])} {sureness(error)}"
    return quote(inputs_of(error), note)


def ranking_block(error: dict[str, Any]) -> str:
    """Return the HTML of an error of a ranking: the query, the document put first, and a right one."""
    first = shortened(str(error.get("first_document") or error["predicted"]))
    right = shortened(str(error.get("right_document") or error["gold"]))
    blocks = (
        f"<p><b>{escape(shortened(str(error.get('query', ''))))}</b></p>"
        f'<p><small>put first</small> <span class="wrong">{escape(first)}</span></p>'
        f'<p><small>right</small> <span class="right">{escape(right)}</span></p>'
    )
    return quote(blocks, sureness(error))


def inputs_of(error: dict[str, Any]) -> str:
    """Return the input texts of a row, whatever its columns are called."""
    texts = [
        plain(value)
        for name, value in error.items()
        if name not in _NOT_INPUTS and not name.startswith("probability_") and isinstance(value, str | list) and value
    ]
    return "".join(f"<p>{escape(shortened(text))}</p>" for text in texts)


def quote(content: str, said: str) -> str:
    """Return a block quote with what the model said below it."""
    footer = f"<footer>{escape(said)}</footer>" if said.strip() else ""
    return f"<blockquote>{content}{footer}</blockquote>"


def sureness(error: dict[str, Any]) -> str:
    """Return how sure the model was, in brackets; empty if it does not say."""
    value = error.get("score")
    if not isinstance(value, int | float):
        return ""
    return f"({100 * value:.0f} % sure)" if 0 <= value <= 1 else f"(score {value:.3g})"


def plain(value: Any) -> str:
    """Return a value as text."""
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, list):
        return ", ".join(plain(inner) for inner in value) or "none"
    return str(value)
