"""Figures drawn by matplotlib: SVG for pages, in their light or dark colours, and PNG for MLflow and DVC.

Figures are made without pyplot and with their own settings, so that nothing global changes.
"""

import io
import math
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from importlib.resources import files
from typing import Any, Concatenate, Literal, ParamSpec

import matplotlib
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from bertline.evaluation.html import score, shortened
from bertline.foundation.formats import printable

_CSS = files("bertline.evaluation").joinpath("templates/style.css").read_text(encoding="utf-8")
COLOURS = dict(re.findall(r"--(ink|soft|rule|c\d): (#\w+)", _CSS.partition("@media")[0]))
"""Colours of a light page by CSS variable; figures are drawn in them, and name the variable in SVG."""
_STYLE = {
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), COLOURS["soft"]),
    **dict.fromkeys(("axes.spines.left", "axes.spines.right", "axes.spines.top", "legend.frameon"), False),
    **dict.fromkeys(("axes.labelsize", "legend.fontsize", "xtick.labelsize", "ytick.labelsize"), 11),
    **dict.fromkeys(("xtick.major.size", "ytick.major.size"), 0),
    **dict.fromkeys(("lines.solid_capstyle", "lines.solid_joinstyle"), "round"),
    "font.size": 12,
    "text.color": COLOURS["ink"],
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.xmargin": 0.03,
    "grid.color": COLOURS["rule"],
    "svg.fonttype": "none",
    "text.parse_math": False,  # `$` stands for itself
}
_WIDTH, _PLOT_HEIGHT = 6.1, 3.3
# Curves with more points are thinned: they look the same and would make the file large.
_MOST_POINTS = 400
_STEPS = (1, 2, 2.5, 5, 10)

Points = Sequence[tuple[float, float]]
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Chart:
    """A finished figure."""

    svg: Markup
    """Element for a page that defines the variables of `COLOURS`."""
    png: bytes


@dataclass(frozen=True, slots=True)
class Series:
    """Named points; `spread` is the standard deviation at each."""

    name: str
    points: Points
    colour: str
    spread: Sequence[float] | None = None
    style: Literal["line", "marked", "dots"] = "line"
    """`marked`: a line with a dot at each point."""


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """A system in a chart of scores; `seeds` are single scores, `interval` is a 95 % interval of the mean."""

    name: str
    mean: float
    colour: str
    spread: float | None = None
    seeds: Sequence[float] = field(default=())
    interval: Sequence[float] | None = None


def _styled(draw: Callable[Concatenate[Figure, P], str]) -> Callable[P, Chart]:
    """Make a chart from a function that draws on a figure and returns a description for those who do not see it."""

    @wraps(draw)
    def chart(*args: P.args, **kwargs: P.kwargs) -> Chart:
        with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")  # a box in PNG; in SVG the page has the fonts
            figure = Figure(figsize=(_WIDTH, _PLOT_HEIGHT), layout="constrained")
            description = printable(draw(figure, *args, **kwargs))
            matplotlib.rcParams["svg.hashsalt"] = description  # ids differ between the charts of a page
            svg, png = io.BytesIO(), io.BytesIO()
            figure.savefig(png, format="png", dpi=150, metadata={"Software": None})
            figure.set_layout_engine("none")  # it stays as it is laid out
            figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None})
        return Chart(_for_page(svg.getvalue().decode(), description), png.getvalue())

    return chart


def _name(name: str) -> str:
    """Return a name as it is drawn: on one line, and without a leading underscore, which would hide it."""
    drawn = shortened(" ".join(printable(name).split()), 60)
    return f" {drawn}" if drawn.startswith("_") else drawn


def _for_page(svg: str, description: str) -> Markup:
    """Return matplotlib's SVG as an element that takes fonts and colours from the page around it."""

    def rounded(number: re.Match[str]) -> str:
        return f"{float(number[0]):.1f}".removesuffix(".0")

    box = re.search(r'viewBox="([^"]*)"', svg)
    assert box is not None
    body = re.sub(r"<(metadata|style).*?</\1>", "", svg[svg.index(">", svg.index("<svg")) + 1 :], flags=re.DOTALL)
    body = re.sub(r'<g id="said: ([^"]*)">', r"<g><title>\1</title>", body)
    body = re.sub(r'<g id="[^"]*"', "<g", body)
    body = re.sub(r"font-family: [^;\"]*;? ?", "", body)
    body = re.sub(r"<[^>]*>", lambda tag: re.sub(r"\d+\.\d{3,}", rounded, tag[0]), body)
    for name, light in COLOURS.items():
        body = body.replace(light, f"var(--{name})")
    body = re.sub(r"\s*\n\s*", " ", body)
    return Markup(f'<svg viewBox="{box[1]}" role="img" aria-label="{escape(description)}">{body}')


@_styled
def line_chart(
    figure: Figure,
    series: Sequence[Series],
    *,
    x_name: str,
    y_name: str,
    level: tuple[str, float] | None = None,
    log_x: bool = False,
) -> str:
    """Draw curves over a common axis; `level` is a named horizontal line to compare with."""
    axes = figure.subplots()
    series = [replace(curve, name=_name(curve.name)) for curve in series if curve.points]
    for curve in series:
        _draw(axes, curve)
    if level:
        axes.axhline(level[1], color=COLOURS["soft"], linestyle="--", linewidth=1.6, label=_name(level[0]))
    _scale_x(axes, sorted({x for curve in series for x, _ in curve.points}), log=log_x)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=_STEPS))
    axes.yaxis.set_major_formatter(_number)
    axes.set_xlabel(x_name)
    axes.set_title(y_name, loc="right", fontsize=11, color=COLOURS["soft"])
    names = [str(name) for name in axes.get_legend_handles_labels()[1]]
    columns = max(1, min(3, 75 // (max(map(len, names), default=0) + 6)))  # 75 characters fit in a line
    figure.set_size_inches(_WIDTH, _PLOT_HEIGHT + 0.26 * math.ceil(len(names) / columns))
    if names:
        figure.legend(loc="outside upper left", ncols=columns, handlelength=1.4, columnspacing=1.4)
    return f"{y_name} by {x_name}: {', '.join(names)}"


def _draw(axes: Axes, curve: Series) -> None:
    colour = COLOURS[curve.colour]
    if curve.style == "dots":
        axes.plot(
            *zip(*curve.points, strict=True), "o", color=colour, alpha=0.75, label=curve.name, markersize=8, mew=0
        )
        return
    every = max(1, len(curve.points) // _MOST_POINTS)
    thin = [*curve.points[:-1:every], curve.points[-1]]  # the last point is the result
    axes.plot(*zip(*thin, strict=True), color=colour, label=curve.name, linewidth=1.8)
    if curve.style == "marked":
        for (x, y), spread in zip(curve.points, curve.spread or [0.0] * len(curve.points), strict=True):
            axes.errorbar(x, y, spread or None, fmt="none", color=colour, linewidth=1.5)
            axes.plot(x, y, "o", color=colour, markersize=5, gid=f"said: {curve.name}: {score(y, spread or None)}")


def _scale_x(axes: Axes, values: Sequence[float], *, log: bool) -> None:
    """Set the scale and the ticks of the horizontal axis: the values themselves if these are few and round."""
    if log:
        axes.set_xscale("log")
        decades = math.log10(values[-1] / values[0]) if values[0] > 0 else 0
        axes.xaxis.set_major_locator(LogLocator(subs=(1,) if decades > 3 else (1, 3)))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=_STEPS))
    if 1 < len(values) <= 4 and all(float(_number(value).replace(",", "")) == value for value in values):
        axes.set_xticks(values)
    axes.xaxis.set_major_formatter(_number)


@_styled
def dot_chart(figure: Figure, rows: Sequence[ScoreRow], *, x_name: str) -> str:
    """Draw the scores of systems, one below the other.

    Each has a dot for the mean, a bar of one standard deviation to each side, small dots for seeds, and a thin bracket
    for the interval.
    """
    axes = _rows_below_each_other(figure, len(rows), 0.6)
    for place, row in enumerate(rows):
        colour, said = COLOURS[row.colour], score(row.mean, row.spread)
        _name_row(axes, place, row.name, said)
        if row.interval is not None:
            axes.plot(row.interval, [place, place], "|-", color=colour, linewidth=0.8, alpha=0.8, markersize=8)
        axes.plot(row.seeds, [place] * len(row.seeds), "o", color=colour, markersize=4, alpha=0.45, mew=0)
        axes.errorbar(row.mean, place, xerr=row.spread, fmt="none", color=colour, linewidth=2.2)
        axes.plot(row.mean, place, "o", color=colour, markersize=8, gid=f"said: {_name(row.name)}: {said}")
    if min(row.mean for row in rows) < 0.3:
        axes.update_datalim([(0, 0)])
        axes.autoscale_view()
    axes.xaxis.set_major_formatter(_number)
    axes.set_xlabel(x_name)
    return f"{x_name}: {', '.join(f'{row.name} {score(row.mean, row.spread)}' for row in rows)}"


@_styled
def bar_chart(figure: Figure, rows: Sequence[tuple[str, float]], *, name: str) -> str:
    """Draw amounts as horizontal bars with their numbers."""
    axes = _rows_below_each_other(figure, len(rows), 0.42)
    axes.barh(range(len(rows)), [value for _, value in rows], height=0.26, color=COLOURS["c0"])
    axes.set_axis_off()
    axes.set_xlim(0, max(value for _, value in rows) or 1)
    for place, (label, value) in enumerate(rows):
        _name_row(axes, place, label, f"{value:,.0f}")
    return f"{name}: {', '.join(f'{label} {value:,.0f}' for label, value in rows)}"


def _rows_below_each_other(figure: Figure, number: int, height: float) -> Axes:
    figure.set_size_inches(_WIDTH, height * number + 0.6)
    axes = figure.subplots()
    axes.set_ylim(number - 0.5, -0.75)
    axes.set_yticks([])
    return axes


def _name_row(axes: Axes, place: int, name: str, number: str) -> None:
    above: Any = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "va": "bottom"}
    axes.annotate(_name(name), (0, place), (0, 6), **above)
    axes.annotate(number, (1, place), (0, 6), **above, ha="right", weight="bold")


def _number(value: float, _: float = 0) -> str:
    """Return a short label for a tick.

    >>> _number(3000.0), _number(0.25), _number(0.0003), _number(0.00015), _number(0.0)
    ('3,000', '0.25', '3e-4', '1.5e-4', '0')
    """
    if value and abs(value) < 0.001:
        return f"{value:.1e}".replace(".0e", "e").replace("e-0", "e-")
    return f"{value:,.0f}" if value == round(value) else f"{value:.4g}"
