"""SVG shapes of the charts. Colours are classes of `chart.css`, so that charts adapt to light and dark mode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from bertline.evaluation.html import escape

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
