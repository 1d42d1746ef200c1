"""Charts of the report, as SVG text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from bertline.evaluation.html import (
    WIDTH,
    Scale,
    dot,
    drawing,
    half_width,
    legend,
    line,
    padded,
    path,
    rounded,
    score,
    shortened,
    text,
    tick_label,
)

_LEFT, _RIGHT, _PLOT_HEIGHT = 46, 12, 190
_BELOW = 36
"""Height in pixels of the tick labels and the name of the horizontal axis."""
_MOST_POINTS = 400
"""Curves with more points are thinned: they look the same and would make the file large."""


@dataclass(frozen=True, slots=True)
class Series:
    """A named curve; `spread` is the standard deviation at each point."""

    name: str
    points: Sequence[tuple[float, float]]
    css: str
    spread: Sequence[float] | None = None
    marked: bool = False
    """Whether each point is drawn as a dot."""
    behind: bool = False
    """Whether the curve is drawn pale, below all others, and last in the legend; without a name it is not listed."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a dot chart; `points` are the scores of single seeds, `interval` is a 95 % interval of the mean."""

    name: str
    mean: float
    css: str
    spread: float | None = None
    points: Sequence[float] = field(default=())
    interval: Sequence[float] | None = None


def line_chart(
    series: Sequence[Series],
    *,
    x_name: str,
    y_name: str,
    level: tuple[str, float] | None = None,
    log_x: bool = False,
    marks: Sequence[tuple[float, str]] = (),
) -> str:
    """Draw curves over a common axis.

    Args:
        series: The curves.
        x_name: Name of the horizontal axis.
        y_name: Name of the vertical axis.
        level: Named horizontal line to compare with.
        log_x: Whether the horizontal axis is logarithmic.
        marks: Places on the horizontal axis at which something changes, each with a short text.
    """
    series = sorted((curve for curve in series if curve.points), key=lambda curve: not curve.behind)
    own = [(curve.name, curve.css) for curve in series if not curve.behind] + ([(level[0], "level")] if level else [])
    names = own + [(curve.name, "behind") for curve in series if curve.behind and curve.name]
    shapes, top = legend(names)
    ys = [y + sign * spread for curve in series for (_, y), spread in _with_spread(curve) for sign in (-1, 1)]
    xs = [x for curve in series for x, _ in curve.points]
    x, ticks = _horizontal(xs, log=log_x, as_far=not log_x)
    y = _vertical([*ys, level[1]] if level else ys, top)
    parts = [shapes, _axes(x, y, x_name, y_name, top, ticks), *_drawn_marks(marks, x, y)]
    if level:
        parts.append(line(_LEFT, y(level[1]), WIDTH - _RIGHT, y(level[1]), "stroke level dashed"))
    for curve in series:
        every = max(1, len(curve.points) // _MOST_POINTS)
        thin = [*curve.points[:-1:every], curve.points[-1]]  # the last point is the result
        parts.append(path([(x(a), y(b)) for a, b in thin], f"stroke {curve.css}{' behind' if curve.behind else ''}"))
        for (a, b), spread in _with_spread(curve):
            if spread:
                parts.append(line(x(a), y(b - spread), x(a), y(b + spread), f"stroke {curve.css} thin"))
            if curve.marked:
                parts.append(dot(x(a), y(b), 3.5, f"fill {curve.css}", f"{curve.name}: {score(b, spread or None)}"))
    return drawing(parts, top + _PLOT_HEIGHT + _BELOW, f"{y_name} by {x_name}: {', '.join(name for name, _ in names)}")


def dot_chart(rows: Sequence[Row], *, x_name: str) -> str:
    """Draw scores as rows, to compare systems.

    Each row has a dot for the mean, a bar of one standard deviation to each side, small dots for seeds, and a thin
    bracket for the interval.
    """
    values = [value for row in rows for value in (row.mean - (row.spread or 0), row.mean + (row.spread or 0))]
    values += [value for row in rows for value in (*row.points, *(row.interval or ()))]
    top, step = 10, 44
    bottom = top + step * len(rows)
    values += [0.0] if min(values) < 0.3 else []
    x = Scale(*rounded(*_apart(values)), 12, WIDTH - _RIGHT)
    parts = [_x_axis(x, bottom, x_name, top, x.ticks())]
    for index, row in enumerate(rows):
        y = top + step * index + 32
        parts.append(text(12, y - 16, row.name))
        parts.append(text(WIDTH - _RIGHT, y - 16, score(row.mean, row.spread), "strong", "end"))
        if row.interval is not None:
            low, high = x(row.interval[0]), x(row.interval[1])
            parts.append(line(low, y, high, y, f"stroke {row.css} hair"))
            parts.extend(line(end, y - 4, end, y + 4, f"stroke {row.css} hair") for end in (low, high))
        parts.extend(dot(x(point), y, 2.5, f"fill {row.css} faint") for point in row.points)
        if row.spread is not None:
            parts.append(line(x(row.mean - row.spread), y, x(row.mean + row.spread), y, f"stroke {row.css}"))
        parts.append(dot(x(row.mean), y, 5, f"fill {row.css}", f"{row.name}: {score(row.mean, row.spread)}"))
    label = ", ".join(f"{row.name} {score(row.mean, row.spread)}" for row in rows)
    return drawing(parts, bottom + _BELOW, f"{x_name}: {label}")


def scatter_chart(
    groups: Sequence[tuple[str, str, Sequence[tuple[float, float]]]], *, x_name: str, y_name: str, log_x: bool = False
) -> str:
    """Draw groups of points, each (name, CSS class, points)."""
    groups = [group for group in groups if group[2]]
    shapes, top = legend([(name, css) for name, css, _ in groups])
    xs = [x for _, _, points in groups for x, _ in points]
    ys = [y for _, _, points in groups for _, y in points]
    x, ticks = _horizontal(xs, log=log_x)
    y = _vertical(ys, top)
    parts = [shapes, _axes(x, y, x_name, y_name, top, ticks)]
    for name, css, points in groups:
        parts.extend(dot(x(a), y(b), 4.5, f"fill {css} see-through", name) for a, b in points)
    return drawing(parts, top + _PLOT_HEIGHT + _BELOW, f"{y_name} by {x_name}")


def bar_chart(rows: Sequence[tuple[str, float]], *, name: str) -> str:
    """Draw amounts as horizontal bars with their numbers."""
    step, longest = 34, max(value for _, value in rows) or 1.0
    parts = []
    for index, (label, value) in enumerate(rows):
        y = 14 + index * step
        width = (WIDTH - 12) * value / longest
        parts.append(f'<rect x="6" y="{y + 6}" width="{max(1.5, width):.1f}" height="7" rx="2" class="fill c0"/>')
        parts.append(text(6, y, label))
        parts.append(text(WIDTH - 6, y, f"{value:,.0f}", "strong", "end"))
    return drawing(parts, step * len(rows) + 4, name)


def _horizontal(values: Sequence[float], *, log: bool, as_far: bool = False) -> tuple[Scale, list[float]]:
    """Return the horizontal scale of some values, and its ticks."""
    pixels, (low, high) = (_LEFT, WIDTH - _RIGHT), _apart(values)
    if not as_far:
        if own := _own_ticks(values):
            around = (own[0] * 0.8, own[-1] * 1.25) if log else padded(own)
            return Scale(*around, *pixels, log), own
        scale = Scale(*rounded(low, high, log=log), *pixels, log)
        return scale, scale.ticks()
    if min(values) == max(values):
        return Scale(low, high, *pixels), [values[0]]
    scale = Scale(0.0 if 0 < low < high / 10 else low, high, *pixels)
    room = (high - low) / 8  # a tick nearer to the end would touch its label
    return scale, [*(tick for tick in scale.ticks() if tick < high - room), high]


def _vertical(values: Sequence[float], top: float) -> Scale:
    return Scale(*rounded(*_apart(values)), top + _PLOT_HEIGHT, top)


def _apart(values: Sequence[float]) -> tuple[float, float]:
    """Return the range of values; equal values get a range around them."""
    low, high = min(values), max(values)
    return (low, high) if low < high else padded(values)


def _drawn_marks(marks: Sequence[tuple[float, str]], x: Scale, y: Scale) -> list[str]:
    parts = []
    for at, said in marks:
        place = x(at)
        parts.append(line(place, y.start, place, y.end, "mark"))
        fits = place + 4 + 2 * half_width(said) <= WIDTH
        parts.append(text(place + (4 if fits else -4), y.start - 5, said, "tick", "start" if fits else "end"))
    return parts


def _own_ticks(values: Sequence[float]) -> list[float]:
    """Return the distinct values as ticks if they are few and round, as in a grid; else an empty list."""
    distinct = sorted(set(values))
    round_ones = [value for value in distinct if float(tick_label(value).replace(",", "")) == value]
    return distinct if 1 < len(distinct) <= 4 and round_ones == distinct else []


def _with_spread(curve: Series) -> list[tuple[tuple[float, float], float]]:
    return list(zip(curve.points, curve.spread or [0.0] * len(curve.points), strict=True))


def _axes(x: Scale, y: Scale, x_name: str, y_name: str, top: float, x_ticks: Sequence[float]) -> str:
    parts = [_x_axis(x, y.start, x_name, top, x_ticks)]
    for tick in y.ticks():
        parts.append(line(x.start, y(tick), x.end, y(tick), "grid"))
        parts.append(text(x.start - 6, y(tick) + 4, tick_label(tick), "tick", "end"))
    parts.append(text(WIDTH - _RIGHT, top - 8, y_name, "tick", "end"))
    return "".join(parts)


def _x_axis(x: Scale, y: float, name: str, top: float, ticks: Sequence[float]) -> str:
    parts = [line(x.start, y, x.end, y, "axis")]
    for tick in ticks:
        parts.append(line(x(tick), top, x(tick), y, "grid"))
        label = tick_label(tick)
        # A label at an end of the axis must not be clipped by the edge of the drawing.
        at = max(half_width(label), min(x(tick), WIDTH - half_width(label)))
        parts.append(text(at, y + 15, label, "tick", "middle"))
    parts.append(text((x.start + x.end) / 2, y + 30, name, "tick", "middle"))
    return "".join(parts)


Points = Sequence[tuple[float, float]]

_COLUMNS, _GAP, _TITLE, _PANELS_BELOW = 4, 8, 18, 24
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
    parts.append(text(0, bottom + _PANELS_BELOW, f"up: {y_name}", "tick"))
    named = ", ".join(name for name, _ in groups)
    return drawing(parts, bottom + _PANELS_BELOW + 6, f"{y_name} by {x_name}, one panel each for {named}")


def _title(x: float, y: float, name: str) -> str:
    """Draw the name of a panel; a name that is wider than the panel is drawn narrower, not cut."""
    if len(name) <= _CHARACTERS:
        return text(x, y, name)
    fitted = f' textLength="{_SIDE:.0f}" lengthAdjust="spacingAndGlyphs"'
    return text(x, y, shortened(name, 2 * _CHARACTERS)).replace("<text", f"<text{fitted}", 1)


def _dots(points: Points, x: Scale, y: Scale, css: str) -> str:
    """Draw dots as one path of lines without length, which takes a tenth of the bytes of circles."""
    return f'<path d="{"".join(f"M{x(a):.1f} {y(b):.1f}h0" for a, b in points)}" class="dots {css}"/>'
