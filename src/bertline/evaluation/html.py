"""Numbers, text and HTML building blocks of the report, and single errors for the kinds of task."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Any, Literal

from bertline.foundation.formats import count, percent
from bertline.tasks.metrics.names import metric_name as metric_name

_FEW = 6
"""Number of names that `counted` lists."""


def escape(text: object) -> str:
    """Escape any text for HTML; the user's corpus may contain anything.

    Example:
        >>> escape("<script>")
        '&lt;script&gt;'
    """
    return html.escape(str(text), quote=True)


def in_unit(value: float, unit: Literal["nats", "fraction"]) -> str:
    """Format a score of pretraining.

    Example:
        >>> in_unit(3.6372, "nats"), in_unit(0.8276, "fraction")
        ('3.64', '82.8 %')
    """
    return f"{value:.2f}" if unit == "nats" else percent(value)


def score(value: float, spread: float | None = None) -> str:
    """Format a score, with the standard deviation over seeds if given.

    Example:
        >>> score(0.42), score(0.4213, 0.0121).split()
        ('0.420', ['0.421', '±', '0.012'])
    """
    # U+202F: narrow no-break spaces.
    number = f"{value:.3f}".replace("-", "\u2212")
    return number if spread is None else f"{number}\u202f±\u202f{spread:.3f}"


def number_of(number: float, thing: str) -> str:
    """Format a count with its noun.

    Example:
        >>> number_of(1, "layer"), number_of(12, "layer")
        ('1 layer', '12 layers')
    """
    return f"{count(number)} {thing}{'' if number == 1 else 's'}"


def counted(names: Sequence[str], thing: str) -> str:
    """Format how many names there are, and the first few of them.

    Example:
        >>> counted(["numpy", "torch"], "label"), counted(list("abcdefgh"), "tag")
        ('2 labels (numpy, torch)', '8 tags (a, b, c, d, e, f, …)')
    """
    few = ", ".join([*names[:_FEW], "…"] if len(names) > _FEW else names)
    return f"{number_of(len(names), thing)} ({few})" if names else f"{thing}s"


def with_diverged(finished: int, diverged: int) -> str:
    """Format the number of seeds of a score.

    Example:
        >>> with_diverged(5, 0), with_diverged(4, 1)
        ('5', '4 (1 more diverged)')
    """
    return f"{finished} ({diverged} more diverged)" if diverged else str(finished)


def setting(value: object) -> str:
    """Format the value of a hyperparameter.

    Example:
        >>> setting(0.00030000000000000003), setting(32), setting("gelu")
        ('0.0003', '32', 'gelu')
    """
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def listing(words: Sequence[str]) -> str:
    """Join words as in a sentence.

    Example:
        >>> listing(["a"]), listing(["a", "b"]), listing(["a", "b", "c"])
        ('a', 'a and b', 'a, b and c')
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def shortened(text: str, limit: int) -> str:
    """Shorten a text to at most `limit` characters, cut at a space.

    Example:
        >>> shortened("one two three", 9)
        'one two …'
    """
    return text if len(text) <= limit else text[: limit - 1].rsplit(" ", 1)[0] + " …"


_EMPTY = ("", "–")


def section(identity: str, heading: str, *blocks: str) -> str:
    """Return a section with its heading."""
    return f'<section id="{identity}"><h2>{escape(heading)}</h2>{"".join(blocks)}</section>'


def contents(sections: Sequence[str]) -> str:
    """Return links to sections made by `section`."""
    found = [re.match(r'<section id="([^"]+)"><h2>(.*?)</h2>', one) for one in sections]
    links = (f'<a href="#{one[1]}">{one[2]}</a>' for one in found if one is not None)
    return f'<nav aria-label="Contents">{"".join(links)}</nav>'


def paragraph(text: str, css: str = "") -> str:
    """Return a paragraph of plain text."""
    return f'<p class="{css}">{escape(text)}</p>' if css else f"<p>{escape(text)}</p>"


def verdict(text: str, *, good: bool = False) -> str:
    """Return a paragraph that stands out; in green if it is `good` news."""
    return paragraph(text, "verdict good" if good else "verdict unsure")


def figure(chart: str, caption: str) -> str:
    """Return a chart with its caption."""
    return f"<figure>{chart}<figcaption>{escape(caption)}</figcaption></figure>"


def side_by_side(*blocks: str) -> str:
    """Return blocks that are laid out in columns if the window is wide enough."""
    return f'<div class="columns">{"".join(block for block in blocks if block)}</div>'


def tiles(entries: Sequence[tuple[str, str, str]]) -> str:
    """Return large figures, each (value, name, note on what it compares with)."""
    items = (
        f'<div class="tile"><b>{_with_small_spread(value)}</b><span>{escape(name)}</span>'
        f"<small>{escape(note)}</small></div>"
        for value, name, note in entries
    )
    return f'<div class="tiles">{"".join(items)}</div>'


def _with_small_spread(value: str) -> str:
    number, sign, spread = value.partition("\u202f±\u202f")
    return escape(number) + (f" <i>±\u202f{escape(spread)}</i>" if sign else "")


class Strong(str):
    """Text of a cell in bold."""

    __slots__ = ()


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of plain text cells; on a narrow screen each row is a block, with the head before each cell.

    Columns whose cells are all empty or a dash are left out.
    """
    kept = [place for place in range(len(head)) if not rows or any(row[place] not in _EMPTY for row in rows)]
    header = "".join(f"<th>{escape(head[place])}</th>" for place in kept)
    body = "".join("<tr>" + "".join(_cell(row[place], head[place]) for place in kept) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(content: str, head: str) -> str:
    shown = f"<b>{escape(content)}</b>" if isinstance(content, Strong) else escape(content)
    return f'<td data-head="{escape(head)}">{shown}</td>'


def folded(summary: str, content: str) -> str:
    """Return collapsed content that opens on a click on its summary."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def shown_tokens(tokens: Sequence[str]) -> str:
    """Return WordPiece tokens as HTML; tokens that continue a word are joined to it and shaded."""
    spans = []
    for token in tokens:
        continues = token.startswith("##") and len(token) > 2
        css = "token continued" if continues else "token"
        spans.append(
            f'{"" if continues else " "}<span class="{css}">{escape(token[2:] if continues else token)}</span>'
        )
    return f'<p class="tokens">{"".join(spans).strip()}</p>'


CHARACTERS = 420

_NOT_INPUTS = ("id", "gold", "predicted", "score", "correct", "words")


def label_block(error: dict[str, Any]) -> str:
    """Return the HTML of an error of a classifier."""
    said = f"is {plain(error['gold'])}, taken for {plain(error['predicted'])} {sureness(error)}"
    return quote(inputs_of(error), said)


def ranking_block(error: dict[str, Any]) -> str:
    """Return the HTML of an error of a ranking: the query, the document put first, and a right one."""
    query = str(error.get("query", ""))
    first = shortened(str(error.get("first_document") or error["predicted"]), CHARACTERS)
    right = shortened(str(error.get("right_document") or error["gold"]), CHARACTERS)
    blocks = f"<p><b>{escape(shortened(query, CHARACTERS))}</b></p>"
    blocks += f'<p><small>put first</small> <span class="wrong">{escape(first)}</span></p>'
    blocks += f'<p><small>right</small> <span class="right">{escape(right)}</span></p>'
    return quote(blocks, sureness(error))


def inputs_of(error: dict[str, Any]) -> str:
    """Return the input texts of a row, whatever its columns are called."""
    texts = [
        plain(value)
        for name, value in error.items()
        if name not in _NOT_INPUTS and not name.startswith("probability_") and isinstance(value, str | list) and value
    ]
    return "".join(f"<p>{escape(shortened(text, CHARACTERS))}</p>" for text in texts)


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
