import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertline.evaluation.charts import Row, Series, bar_chart, dot_chart, line_chart, scatter_chart, small_multiples
from bertline.evaluation.svg import WIDTH, Scale, rounded, standalone

SVG = "{http://www.w3.org/2000/svg}"


def shapes(chart: str, kind: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(chart).iter(SVG + kind))


def test_a_dot_chart_shows_mean_spread_and_each_seed() -> None:
    chart = dot_chart([Row("one", 0.5, "c0", 0.1, [0.4, 0.6]), Row("two", 0.3, "c1")], x_name="accuracy")
    assert len(shapes(chart, "circle")) == 4
    said = [element.text for element in shapes(chart, "text")]
    assert "0.500\u202f±\u202f0.100" in said
    assert "0.300" in said


def test_a_level_is_drawn_inside_the_chart_even_far_from_the_curve() -> None:
    chart = line_chart([Series("a", [(0, 1.0), (10, 2.0)], "c0")], x_name="step", y_name="loss", level=("six", 6.0))
    (level,) = [element for element in shapes(chart, "line") if "dashed" in element.attrib["class"]]
    height = float(ElementTree.fromstring(chart).attrib["viewBox"].split()[3])
    assert 0 < float(level.attrib["y1"]) < height


def test_long_curves_are_thinned_and_short_ones_are_whole() -> None:
    for number, most in ((100, 100), (100_000, 500)):
        points = [(float(step), 1.0) for step in range(number)]
        chart = line_chart([Series("a", points, "c0")], x_name="step", y_name="loss")
        drawn = shapes(chart, "path")[0].attrib["d"].count("L") + 1
        assert drawn <= most
        assert drawn >= min(number, 200)


def test_a_legend_too_long_for_a_row_continues_in_the_next() -> None:
    groups = [(f"a rather long label {n}", "c0", [(0.0, 0.0), (1.0, 1.0)]) for n in range(9)]
    chart = scatter_chart(groups, x_name="x", y_name="y")
    texts = [element for element in shapes(chart, "text") if (element.text or "").startswith("a rather")]
    assert len({element.attrib["y"] for element in texts}) > 1
    assert all(float(element.attrib["x"]) < WIDTH - 100 for element in texts)


@pytest.mark.parametrize("value", [0.0, 5.0, -3.0])
def test_values_that_are_all_equal_can_be_drawn(value: float) -> None:
    curve = line_chart([Series("a", [(1.0, value)], "c0", marked=True)], x_name="step", y_name="loss")
    rows = dot_chart([Row("a", value, "c0"), Row("b", value, "c1")], x_name="score")
    points = scatter_chart([("a", "c0", [(value, value), (value, value)])], x_name="x", y_name="y")
    for chart, number in ((curve, 1), (rows, 2), (points, 2)):
        height = float(ElementTree.fromstring(chart).attrib["viewBox"].split()[3])
        places = [(float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in shapes(chart, "circle")]
        assert len(places) == number
        assert all(0 < x < WIDTH and 0 < y < height for x, y in places)
        assert len({x for x, _ in places}) == 1
    bars = [bar.attrib["width"] for bar in shapes(bar_chart([("a", abs(value)), ("b", abs(value))], name="n"), "rect")]
    assert bars == ([f"{WIDTH - 12:.1f}"] * 2 if value else ["1.5"] * 2)


def test_logarithmic_ticks_are_round_and_inside() -> None:
    scale = Scale(1e-4, 3e-3, 0, 100, log=True)
    assert scale.ticks() == pytest.approx([1e-4, 3e-4, 1e-3, 3e-3])
    assert (scale(1e-4), scale(3e-3)) == pytest.approx((0, 100))


def test_an_axis_is_never_labelled_with_a_rounded_value() -> None:
    chart = scatter_chart([("a", "c0", [(1.533e-4, 0.1), (2.7e-5, 0.2)])], x_name="lr", y_name="dev", log_x=True)
    said = {element.text for element in shapes(chart, "text")}
    assert "1e-4" in said
    assert "2e-4" not in said


def test_a_chart_as_a_file_brings_its_own_style_size_and_background() -> None:
    chart = standalone(bar_chart([("a", 1.0)], name="amounts"))
    (style,) = shapes(chart, "style")
    light, dark = (style.text or "").split("@media (prefers-color-scheme: dark)")
    assert "--page:" in light and "--page:" in dark  # else light text may stand on a viewer's white
    root = ElementTree.fromstring(chart)
    width, height = root.attrib["viewBox"].split()[2:]
    assert float(root.attrib["width"]) / float(width) == pytest.approx(
        float(root.attrib["height"]) / float(height), 0.1
    )
    page = root[1]
    assert (page.attrib["class"], page.attrib["width"], page.attrib["height"]) == ("page", width, height)


@pytest.mark.parametrize("log", [False, True])
@given(st.floats(1e-5, 1e5), st.floats(1.001, 1e4))
def test_a_rounded_range_holds_the_values_and_ends_at_ticks(log: bool, low: float, times: float) -> None:
    start, end = rounded(low, low * times, log=log)
    assert start <= low * (1 + 1e-6) and end >= low * times * (1 - 1e-6)
    ticks = Scale(start, end, 0, 100, log).ticks()
    assert (ticks[0], ticks[-1]) == (pytest.approx(start), pytest.approx(end))


def test_the_last_step_is_a_tick_and_the_last_value_is_drawn() -> None:
    points = [(float(step), 5.0 - step / 1000) for step in range(0, 4_701, 3)]
    chart = line_chart([Series("a", points, "c0")], x_name="step", y_name="loss")
    said = [element.text for element in shapes(chart, "text")]
    assert said[said.index("0") :][:6] == ["0", "1,000", "2,000", "3,000", "4,000", "4,698"]
    assert shapes(chart, "path")[0].attrib["d"].split(" L")[-1].split()[0] == f"{WIDTH - 12:.1f}"


def test_a_change_is_a_named_line_inside_the_chart() -> None:
    points = [(0.0, 1.0), (100.0, 2.0)]
    chart = line_chart([Series("a", points, "c0")], x_name="step", y_name="loss", marks=[(90.0, "length 512")])
    (mark,) = [element for element in shapes(chart, "line") if element.attrib["class"] == "mark"]
    assert float(mark.attrib["x1"]) == pytest.approx(46 + 0.9 * (WIDTH - 58), abs=0.1)
    (said,) = [element for element in shapes(chart, "text") if element.text == "length 512"]
    assert (said.attrib["text-anchor"], float(said.attrib["x"]) < float(mark.attrib["x1"])) == ("end", True)


def test_each_group_has_a_panel_with_all_points_behind_its_own() -> None:
    groups = [(f"a long name of label {n}", [(float(n), 0.0), (float(n), 1.0)]) for n in range(13)]
    chart = small_multiples(groups, x_name="first", y_name="second")
    dots = [(element.attrib["class"], element.attrib["d"].count("M")) for element in shapes(chart, "path")]
    assert dots == [("dots all", 26), ("dots own", 2)] * 13
    titles = [element for element in shapes(chart, "text") if "textLength" in element.attrib]
    assert [title.text for title in titles] == [name for name, _ in groups]  # narrower, not cut
    assert all(float(title.attrib["textLength"]) <= WIDTH / 4 for title in titles)
    frames = shapes(chart, "rect")
    assert len({(frame.attrib["x"], frame.attrib["y"]) for frame in frames}) == 13
    height = float(ElementTree.fromstring(chart).attrib["viewBox"].split()[3])
    assert all(float(frame.attrib["x"]) + float(frame.attrib["width"]) <= WIDTH + 0.1 for frame in frames)
    assert all(float(frame.attrib["y"]) + float(frame.attrib["height"]) < height for frame in frames)


def test_names_are_escaped() -> None:
    chart = bar_chart([('<script>"&', 1.0)], name='"<&')
    assert shapes(chart, "text")[0].text == '<script>"&'


def test_a_curve_behind_is_drawn_first_and_named_last() -> None:
    points = [(0.0, 1.0), (10.0, 2.0)]
    chart = line_chart(
        [
            Series("own", points, "c0"),
            Series("before", points, "c0", behind=True),
            Series("", points, "c1", behind=True),
        ],
        x_name="step",
        y_name="loss",
        level=("chance", 0.5),
    )
    assert ["behind" in element.attrib["class"] for element in shapes(chart, "path")] == [True, True, False]
    named = [element.text for element in shapes(chart, "text") if element.text in ("own", "before", "chance", "", None)]
    assert named == ["own", "chance", "before"]


def test_the_label_at_the_end_of_an_axis_stays_inside() -> None:
    chart = line_chart([Series("a", [(0, 1.0), (6_000_000, 2.0)], "c0")], x_name="step", y_name="loss")
    (label,) = [element for element in shapes(chart, "text") if element.text == "6,000,000"]
    assert float(label.attrib["x"]) + 9 * 7.2 / 2 <= WIDTH
