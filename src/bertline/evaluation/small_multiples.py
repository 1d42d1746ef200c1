"""Small multiples: one panel per group of points, with the points of all others behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bertline.evaluation.formatting import shortened
from bertline.evaluation.svg import WIDTH, Scale, drawing, half_width, padded, text

Points = Sequence[tuple[float, float]]

_COLUMNS, _GAP, _TITLE, _BELOW = 4, 8, 18, 24
_SIDE = (WIDTH - (_COLUMNS - 1) * _GAP) / _COLUMNS
_CHARACTERS = int(_SIDE / (2 * half_width("n")))


def small_multiples(groups: Sequence[tuple[str, Points]], *, x_name: str, y_name: str) -> str:
    """Draw each group of points, (name, points), in a panel of its own.

    In one panel, the colours of many groups cover one another; here a group shows where it lies among all points. All
    panels have the same scales.
    """
    groups = [group for group in groups if group[1]]
    every = [point for _, points in groups for point in points]
    x_range, y_range = padded([a for a, _ in every]), padded([b for _, b in every])
    parts, height = [], _TITLE + _SIDE
    for number, (name, points) in enumerate(groups):
        left, top = (number % _COLUMNS) * (_SIDE + _GAP), (number // _COLUMNS) * (height + _GAP) + _TITLE
        x, y = Scale(*x_range, left, left + _SIDE), Scale(*y_range, top + _SIDE, top)
        parts.append(_title(left, top - 5, name))
        parts.append(f'<rect x="{left:.1f}" y="{top:.1f}" width="{_SIDE:.1f}" height="{_SIDE:.1f}" class="frame"/>')
        parts += [_dots(every, x, y, "all"), _dots(points, x, y, "own")]
    bottom = math.ceil(len(groups) / _COLUMNS) * (height + _GAP)
    parts.append(text(0, bottom + 8, f"across: {x_name}", "tick"))
    parts.append(text(0, bottom + _BELOW, f"up: {y_name}", "tick"))
    named = ", ".join(name for name, _ in groups)
    return drawing(parts, bottom + _BELOW + 6, f"{y_name} by {x_name}, one panel each for {named}")


def _title(x: float, y: float, name: str) -> str:
    """Draw the name of a panel; a name that is wider than the panel is drawn narrower, not cut."""
    if len(name) <= _CHARACTERS:
        return text(x, y, name)
    fitted = f' textLength="{_SIDE:.0f}" lengthAdjust="spacingAndGlyphs"'
    return text(x, y, shortened(name, 2 * _CHARACTERS)).replace("<text", f"<text{fitted}", 1)


def _dots(points: Points, x: Scale, y: Scale, css: str) -> str:
    """Draw dots as one path of lines without length, which takes a tenth of the bytes of circles."""
    return f'<path d="{"".join(f"M{x(a):.1f} {y(b):.1f}h0" for a, b in points)}" class="dots {css}"/>'
