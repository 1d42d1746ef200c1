from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from bertline.evaluation.charts import Row, Series, bar_chart, dot_chart, line_chart, scatter_chart
from bertline.evaluation.facts import PipelineFolders, read_facts
from bertline.evaluation.html import WIDTH, standalone
from bertline.evaluation.task_charts import mean_vectors, neighbours_agree, principal_components, vector_space
from evaluation_inputs import KINDS

SVG = "{http://www.w3.org/2000/svg}"


def shapes(chart: str, kind: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(chart).iter(SVG + kind))


def test_a_dot_chart_shows_mean_spread_and_each_seed() -> None:
    chart = dot_chart([Row("one", 0.5, "c0", 0.1, [0.4, 0.6]), Row("two", 0.3, "c1")], x_name="accuracy")
    assert len(shapes(chart, "circle")) == 4
    said = [element.text for element in shapes(chart, "text")]
    assert "0.500\u202f±\u202f0.100" in said
    assert "0.300" in said


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


def test_names_are_escaped() -> None:
    chart = bar_chart([('<script>"&', 1.0)], name='"<&')
    assert shapes(chart, "text")[0].text == '<script>"&'


def test_the_first_component_is_the_widest_direction_with_a_fixed_sign() -> None:
    random = np.random.default_rng(0)
    points = random.normal(size=(200, 3)) * [10.0, 1.0, 0.1] + 5
    places, shares = principal_components(points.astype(np.float32))
    flipped, _ = principal_components(points.astype(np.float32)[::-1])
    assert shares[0] > 0.95
    assert np.corrcoef(places[:, 0], points[:, 0])[0, 1] > 0.99
    np.testing.assert_allclose(flipped[::-1], places, atol=1e-3)


def test_a_vector_does_not_depend_on_the_texts_it_shares_a_batch_with(pipeline: PipelineFolders) -> None:
    texts = ["the kernel", "the kernel of a frame is in series", "value"]
    together = mean_vectors(pipeline.pretrain, texts, max_length=32)
    alone = np.concatenate([mean_vectors(pipeline.pretrain, [text], max_length=32) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5)


@pytest.mark.parametrize(("name", "drawn"), [(name, name == "library") for name in KINDS])
def test_single_passages_of_one_label_each_are_drawn_and_nothing_else(
    whole_pipeline: PipelineFolders, name: str, drawn: bool
) -> None:
    task = next(task for task in read_facts(whole_pipeline, "title").tasks if task.name == name)
    assert (vector_space(task, whole_pipeline, num_points=12) is not None) is drawn


def test_neighbours_in_clusters_agree_and_those_of_a_random_label_agree_by_chance() -> None:
    random = np.random.default_rng(0)
    labels = np.arange(300) % 3
    clusters = (np.eye(3)[labels] * 10 + random.normal(size=(300, 3))).astype(np.float32)
    assert neighbours_agree(clusters, labels) == (1.0, pytest.approx(99 / 299))
    agreeing, chance = neighbours_agree(clusters, random.permutation(labels))
    assert abs(agreeing - chance) < 0.1
