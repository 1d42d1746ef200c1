from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

from bertline.evaluation.figures import COLOURS, Chart, ScoreRow, Series, bar_chart, dot_chart, line_chart
from evaluation_inputs import HOSTILE


def some_charts(value: float = 0.5) -> dict[str, Chart]:
    points = [(value, value), (value, value)]
    return {
        "curve": line_chart(
            [Series(HOSTILE, points, "c0", [0.1, 0.0], "marked"), Series("other", points, "c1")],
            x_name="step", y_name="loss", level=("chance", value),
        ),
        "log": line_chart(
            [Series("a", [(1e-4, value), (1.0, 2.0)], "c2")], x_name="x", y_name="y", log_x=True
        ),
        "rows": dot_chart(
            [ScoreRow("one", value, "c0", 0.1, [value], [value, value + 1]), ScoreRow("b", value, "c1")], x_name="score"
        ),
        "bars": bar_chart([(HOSTILE, abs(value)), ("b", 0.0)], name="amounts"),
    }  # fmt: skip


def element(chart: Chart) -> ElementTree.Element:
    return ElementTree.fromstring(str(chart.svg).replace("<svg", '<svg xmlns:xlink="xlink"', 1))


@pytest.mark.parametrize("value", [0.0, 5.0, -3.0])
def test_a_chart_of_any_values_is_a_picture_and_an_element_of_a_page(value: float) -> None:
    for chart in some_charts(value).values():
        assert chart.png.startswith(b"\x89PNG")
        drawing = element(chart)
        assert drawing.attrib["role"] == "img" and drawing.attrib["aria-label"]
        assert "script" not in [one.tag for one in drawing.iter()]


def test_colours_follow_the_page_and_ids_belong_to_one_chart() -> None:
    charts = some_charts()
    for chart in charts.values():
        assert not any(light in chart.svg for light in COLOURS.values())
        assert set(re.findall(r"var\(--(\w+)\)", chart.svg)) <= COLOURS.keys()
    ids = [name for chart in charts.values() for name in re.findall(r' id="([^"]*)"', chart.svg)]
    assert len(ids) == len(set(ids))


def test_a_chart_of_scores_names_each_system_with_its_mean_and_spread() -> None:
    said = element(some_charts(0.5)["rows"])
    words = [one.text for one in said.iter() if one.tag in ("text", "title")]
    assert {"one", "0.500\u202f±\u202f0.100", "one: 0.500\u202f±\u202f0.100", "b: 0.500"} <= set(words)
    assert said.attrib["aria-label"] == "score: one 0.500\u202f±\u202f0.100, b 0.500"
