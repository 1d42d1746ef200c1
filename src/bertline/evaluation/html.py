"""HTML and SVG building blocks of pages: numbers, text, shapes, errors of the kinds of task, and the frame."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from string import Template
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
    headings = [re.match(r'<section id="([^"]+)"><h2>(.*?)</h2>', one) for one in sections]
    links = (f'<a href="#{one[1]}">{one[2]}</a>' for one in headings if one is not None)
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
    columns = [place for place in range(len(head)) if not rows or any(row[place] not in _EMPTY for row in rows)]
    header = "".join(f"<th>{escape(head[place])}</th>" for place in columns)
    body = "".join("<tr>" + "".join(_cell(row[place], head[place]) for place in columns) + "</tr>" for row in rows)
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
    note = f"is {plain(error['gold'])}, taken for {plain(error['predicted'])} {sureness(error)}"
    return quote(inputs_of(error), note)


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


# SVG shapes of the charts. Colours are classes of `chart.css`, so that charts adapt to light and dark mode.

WIDTH = 440
_FILE_SCALE = 1.6
"""Size of a standalone file relative to its coordinates."""
_TINY = 1e-9
"""Relative error of a number that is still the tick that it stands for."""
_FEWEST_TICKS = 3
_AIR = 0.06
"""Margin at each end of a range, relative to it."""
_POWERS = range(-12, 13)
"""Powers of ten that a logarithmic axis may end at."""
_CHARACTER_WIDTH = 7.2
"""Average width in pixels of a character of 12 px type in the widest of the system fonts."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Linear or logarithmic map from values to pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (math.log(number) if self.log else number for number in (self.low, self.high, value))
        return self.start + (at - low) / ((high - low) or 1.0) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return round values inside the range, among them both ends of a range of `rounded`."""
        return _log_ticks(self.low, self.high) if self.log else _even_ticks(self.low, self.high)


def rounded(low: float, high: float, *, log: bool = False) -> tuple[float, float]:
    """Return a range that ends at ticks, so that no part of an axis is without a number.

    Example:
        >>> rounded(3.4, 7.2), rounded(1.5e-4, 7e-3, log=True)
        ((3.0, 8.0), (0.0001, 0.01))
    """
    if not log:
        before = None
        while before != (low, high):  # a wider range may have wider steps, of which its ends must be multiples too
            before, step = (low, high), _step(low, high)
            low = round(math.floor(low / step + _TINY) * step, 10)
            high = round(math.ceil(high / step - _TINY) * step, 10)
        return low, high
    start, end = _between(low, high, (1, 3))
    powers = sum(start <= 10.0**power * (1 + _TINY) and 10.0**power <= end * (1 + _TINY) for power in _POWERS)
    return (start, end) if powers < _FEWEST_TICKS else _between(low, high, (1,))


def _between(low: float, high: float, factors: Sequence[int]) -> tuple[float, float]:
    ticks = [factor * 10.0**power for power in _POWERS for factor in factors]
    below = [tick for tick in ticks if tick <= low * (1 + _TINY)]
    above = [tick for tick in ticks if tick >= high * (1 - _TINY)]
    return max(below, default=low), min(above, default=high)


def padded(values: Sequence[float]) -> tuple[float, float]:
    """Return the range of values with a margin at both ends.

    Example:
        >>> padded([0.0, 1.0])
        (-0.06, 1.06)
    """
    low, high = min(values), max(values)
    air = (high - low) * _AIR or abs(high) * _AIR or 1.0
    return low - air, high + air


def tick_label(value: float) -> str:
    """Return a short label for a tick.

    Example:
        >>> tick_label(3000.0), tick_label(0.25), tick_label(0.0003), tick_label(0.00015), tick_label(0.0)
        ('3,000', '0.25', '3e-4', '1.5e-4', '0')
    """
    if value and abs(value) < 0.001:
        return f"{value:.1e}".replace(".0e", "e").replace("e-0", "e-")
    return f"{value:,.0f}" if value == round(value) else f"{value:.4g}"


def half_width(content: str) -> float:
    """Return an upper estimate of half the width of a line of text, in pixels."""
    return len(content) * _CHARACTER_WIDTH / 2


def text(x: float, y: float, content: str, css: str = "", anchor: str = "start") -> str:
    """Draw a line of text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{css}" text-anchor="{anchor}">{escape(content)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, css: str) -> str:
    """Draw a straight line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{css}"/>'


def path(points: Sequence[tuple[float, float]], css: str) -> str:
    """Draw a line through points."""
    joined = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="M{joined}" class="{css}"/>'


def dot(x: float, y: float, radius: float, css: str, title: str = "") -> str:
    """Draw a dot with a tooltip."""
    inner = f"<title>{escape(title)}</title>" if title else ""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" class="{css}">{inner}</circle>'


def legend(entries: Sequence[tuple[str, str]]) -> tuple[str, float]:
    """Draw coloured names at the top, wrapped into rows; return the shapes and the y coordinate of the end."""
    shapes, left, y = [], 8.0, 16.0
    x = left
    for name, css in entries:
        width = 28 + len(name) * _CHARACTER_WIDTH
        if x + width > WIDTH and x > left:
            x, y = left, y + 18
        shapes.append(f'<rect x="{x:.1f}" y="{y - 8:.1f}" width="10" height="10" rx="2" class="fill {css}"/>')
        shapes.append(text(x + 15, y + 1, name))
        x += width
    return "".join(shapes), y + 25


def drawing(shapes: Sequence[str], height: float, description: str) -> str:
    """Return the SVG element, for a page that includes `chart.css`."""
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(description)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(shapes)}</svg>'
    )


def standalone(chart: str) -> str:
    """Return a chart as a standalone SVG file with its style, its size and its own background.

    Without `width` and `height`, viewers that show the file as an image show nothing. The background changes with the
    colours of the text: the page around the file may be light while the system prefers dark, or the reverse.
    """
    head, rest = chart.split(">", 1)
    width, height = head.partition('viewBox="0 0 ')[2].partition('"')[0].split()
    size = f'width="{float(width) * _FILE_SCALE:.0f}" height="{float(height) * _FILE_SCALE:.0f}"'
    page = f'<rect width="{width}" height="{height}" class="page"/>'
    return f"{head} {size}><style>{chart_css()}</style>{page}{rest}\n"


def chart_css() -> str:
    """Return the style sheet of all charts."""
    return files("bertline.evaluation").joinpath("chart.css").read_text(encoding="utf-8")


def _step(low: float, high: float, wanted: int = 5) -> float:
    rough = (high - low) / wanted or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * (1 - _TINY))


def _even_ticks(low: float, high: float) -> list[float]:
    step = _step(low, high)
    first = math.ceil(low / step - _TINY)
    return [round(number * step, 10) for number in range(first, math.floor(high / step + _TINY) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    for factors in ((1,), (1, 3), (1, 2, 3, 5)):
        ticks = [factor * 10.0**power for power in powers for factor in factors]
        inside = [tick for tick in ticks if low * (1 - _TINY) <= tick <= high * (1 + _TINY)]
        if len(inside) >= _FEWEST_TICKS:
            break
    return inside


# The frame of every page: one HTML file without other files, with its style and links within it.


def framed(
    sections: Sequence[str],
    *,
    title: str,
    kicker: str,
    summary: str,
    footer: str,
    provenance: str | None = None,
    style: Sequence[str] = (),
) -> str:
    """Return a whole page; its head and its contents are the same for the report and for the pages of stages.

    Args:
        sections: Made by `html.section`; empty ones are left out of the contents.
        title: Plain text.
        kicker: What kind of page it is, in a few words of plain text.
        summary: HTML after the contents.
        footer: Plain text.
        provenance: HTML before the contents.
        style: CSS rules of this page alone.
    """
    folder = files("bertline.evaluation")
    header = [*([] if provenance is None else [provenance]), contents(sections), summary]
    return Template(folder.joinpath("page.html").read_text(encoding="utf-8")).substitute(
        title=escape(title),
        style="\n".join([folder.joinpath("report.css").read_text(encoding="utf-8") + chart_css(), *style]),
        kicker=escape(kicker),
        header="\n".join(header),
        sections="\n".join(sections),
        footer=escape(footer),
    )
