"""The page of `bertline look` in Chromium: whole at every width, in both schemes, by keyboard alone, with the model's
numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertline
import tiny
from bertline.inference.model import LoadedModel
from bertline.inside import look as module
from bertline.inside.look import look_page
from browsing import shows_something

VIEWS = ("heads", "model", "neuron", "table", "layers", "embeddings")
HARMFUL = "</script><img/src=x/onerror=alert(1)>"
WORDS = (
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "##s",
    ".",
    HARMFUL,
    "\u05e9\u05dc\u05d5\u05dd",
    "donaudampfschifffahrtsgesellschaft",
)
TEXT, PAIR = "the cat sat on a ___ . \u05e9\u05dc\u05d5\u05dd", "Donaudampfschifffahrtsgesellschaft <b>the</b> mats sat"

# The contrast of each text that is seen with what lies behind it (WCAG 2.2, section 1.4.3).
FAINT = """() => {
  const parse = (text) => { const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number); return [r, g, b, a]; };
  const luminance = (colour) => colour.slice(0, 3).map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((total, part, at) => total + part * [0.2126, 0.7152, 0.0722][at], 0);
  const faint = [], nodes = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (nodes.nextNode()) {
    const owner = nodes.currentNode.parentElement, words = nodes.currentNode.textContent.trim();
    if (!words || !owner.checkVisibility() || ["SCRIPT", "NOSCRIPT", "title"].includes(owner.tagName)) continue;
    const layers = [];
    for (let above = owner; above; above = above.parentElement) layers.unshift(getComputedStyle(above).backgroundColor);
    const blend = (under, over) => under.map((part, at) => over[at] * over[3] + part * (1 - over[3]));
    const behind = layers.map(parse).reduce(blend, [255, 255, 255]);
    const style = getComputedStyle(owner), ink = parse(owner.ownerSVGElement ? style.fill : style.color);
    const [light, dark] = [luminance(blend(behind, ink)), luminance(behind)].sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    if (ratio < 4.5) faint.push(`${words.slice(0, 40)} (${ratio.toFixed(2)})`);
  }
  return [...new Set(faint)];
}"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[LoadedModel]:
    changes: dict[str, Any] = {"max_position_embeddings": 40, "initializer_range": 0.5}
    folders = [
        tiny.write_encoder(tmp_path_factory.mktemp("look"), heads=True, seed=seed, words=WORDS, **changes)
        for seed in (1, 2)
    ]
    return [bertline.load(str(folder), device="cpu") for folder in folders]


@pytest.fixture(scope="module")
def page(models: list[LoadedModel], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "look.html"
    path.write_text(look_page(models[:1], TEXT, PAIR)[0], encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def page_of_two(models: list[LoadedModel], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "look.html"
    path.write_text(look_page(models, TEXT)[0], encoding="utf-8")
    return path.as_uri()


def numbers(page: Any, selector: str) -> np.ndarray:
    """The cells of a table, row by row."""
    rows = page.locator(f"{selector} tbody tr").evaluate_all(
        "(rows) => rows.map((row) => [...row.cells].slice(1).map((cell) => cell.innerText))"
    )
    return np.array([[float(cell.replace("\u2212", "-")) for cell in row] for row in rows])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 800, 1400])
def test_every_view_is_whole_and_readable(visit, page: str, page_of_two: str, width: int, scheme: str) -> None:
    for address in (page, page_of_two):
        opened = visit(address, width=width, scheme=scheme)
        for view in VIEWS:
            opened.page.click(f"#tab-{view}")
            assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert opened.cut() == []
            assert opened.tiny(fewest=10) == []
            assert opened.overlapping() == []
            assert opened.page.evaluate(FAINT) == []
            for canvas in opened.page.locator("canvas:not(.maps canvas)").all()[:3]:
                assert shows_something(canvas)
        assert opened.page.locator("img").count() == 0


def test_the_numbers_that_are_shown_are_the_models(visit, page: str, models: list[LoadedModel]) -> None:
    opened, inside = visit(page).page, models[0].inside(TEXT.replace("___", "[MASK]"), PAIR)
    assert (
        inside.value is not None and inside.query is not None and inside.key is not None and inside.scores is not None
    )
    opened.click("#tab-table")
    opened.select_option('[data-key="layer"]', index=1)
    opened.select_option('[data-key="head"]', index=2)
    attention = numbers(opened, '[aria-label^="softmax"]')
    assert np.abs(attention[:, :-1].sum(1) - 1).max() < 1e-9 and (attention[:, -1] == 1).all()
    np.testing.assert_allclose(attention[:, :-1], inside.probabilities[1, 2], atol=2e-3)
    np.testing.assert_allclose(numbers(opened, '[aria-label="× V"]'), inside.value[1, 2], atol=0.02)
    output = inside.probabilities[1, 2] @ inside.value[1, 2]
    np.testing.assert_allclose(numbers(opened, '[aria-label="= output of the head"]'), output, atol=0.02)
    opened.click("#tab-neuron")
    opened.click('[data-key="token 0 3"]')
    opened.locator('[data-key="element"]').fill("5")
    rows = opened.locator(".neuron > div").evaluate_all(
        "(rows) => rows.slice(2).map((row) => [...row.querySelectorAll('.number')].map((one) => one.innerText))"
    )
    found = np.array([[float(cell.replace("\u2212", "-")) for cell in row] for row in rows])
    query, keys = inside.query[1, 2, 3, 5], inside.key[1, 2, :, 5]
    assert (np.abs(found[:, 0] - query * keys) <= 0.02 * (np.abs(query) + np.abs(keys)) + 0.01).all()
    np.testing.assert_allclose(found[:, 1], inside.scores[1, 2, 3], atol=0.01)
    np.testing.assert_allclose(found[:, 2], inside.probabilities[1, 2, 3], atol=2e-3)


def test_a_head_opens_from_its_map_and_tokens_and_segments_filter_its_weights(visit, page: str) -> None:
    opened = visit(page).page
    opened.click("#tab-model")
    opened.click('[data-key="map 0 1 3"]')
    assert opened.locator("#tab-heads").get_attribute("aria-selected") == "true"
    assert opened.locator('[data-key="layer"]').input_value() == "1"
    pressed = opened.locator('[aria-label="Heads"] [aria-pressed="true"]')
    assert pressed.all_inner_texts() == ["4"]
    opened.click('[data-key="head 0"]')
    assert pressed.all_inner_texts() == ["1", "4"]
    opened.mouse.move(0, 0)
    opened.click('[data-key="side 0 0 2"]')
    assert "cat reads, mean of 2 heads" in opened.locator(".readout").inner_text()
    assert opened.locator(".readout .value").count() == 6
    opened.select_option('[data-key="between"]', "ab")
    chosen = opened.locator(".readout .value bdi").all_inner_texts()
    assert chosen[0] not in WORDS[:3]
    before = opened.locator(".side").first.locator("button").count()
    opened.uncheck('[data-key="edges"]')
    assert opened.locator(".side").first.locator("button").count() == before - 3


def test_a_model_without_the_chosen_layer_or_head_names_what_it_shows(
    visit, models: list[LoadedModel], tmp_path: Path
) -> None:
    changes: dict[str, Any] = {"num_hidden_layers": 3, "num_attention_heads": 2, "hidden_size": 32}
    other = bertline.load(str(tiny.write_encoder(tmp_path / "deep", words=WORDS, **changes)), device="cpu")
    (tmp_path / "look.html").write_text(look_page([models[0], other], "the cat sat")[0], encoding="utf-8")
    opened = visit((tmp_path / "look.html").as_uri()).page
    headings, names = opened.locator("h2"), [title.split(",")[0] for title in opened.locator("h2").all_inner_texts()]
    assert headings.all_inner_texts() == names
    opened.select_option('[data-key="layer"]', index=2)
    assert headings.all_inner_texts() == [f"{names[0]}, layer 2 of 2", names[1]]
    opened.click("#tab-neuron")
    opened.select_option('[data-key="head"]', index=3)
    assert headings.all_inner_texts() == [f"{names[0]}, layer 2 of 2", f"{names[1]}, head 2 of 2"]
    opened.locator('[data-key="element"]').fill("15")
    assert [text[:18] for text in opened.locator(".here").all_inner_texts()] == [
        "element 7 of 0 to ", "element 15 of 0 to"
    ]  # fmt: skip
    opened.click("#tab-layers")
    assert headings.all_inner_texts() == names


def test_each_blank_is_filled_whatever_token_is_chosen(
    visit, models: list[LoadedModel], tmp_path: Path, monkeypatch
) -> None:
    text = "the ___ sat on a ___ . the cat ___"
    (tmp_path / "look.html").write_text(look_page(models[:1], text)[0], encoding="utf-8")
    monkeypatch.setattr(module, "_MAX_WEIGHTS", 2 * 4 * 8 * 8)
    (tmp_path / "cut.html").write_text(look_page(models[:1], text)[0], encoding="utf-8")
    best = [blank[0].token for blank in models[0].fill_mask(text.replace("___", "[MASK]"), top_k=1)]
    for name, last in (("look", "[MASK] 3"), ("cut", "[MASK] 3 (not shown)")):
        opened = visit((tmp_path / f"{name}.html").as_uri()).page
        opened.click("#tab-layers")
        assert opened.locator('[aria-label="blank"] button').all_inner_texts() == ["[MASK] 1", "[MASK] 2", last]
        found = opened.locator(".guesses").last.locator("tr").last.locator("bdi").first
        for key, blank in (("blank 0 2", 2), ("token 0 3", 2), ("token 0 6", 1), ("blank 0 0", 0)):
            opened.click(f'[data-key="{key}"]')
            assert found.inner_text() == best[blank]
            assert opened.locator(f'[data-key="blank 0 {blank}"]').get_attribute("aria-pressed") == "true"
        assert opened.locator('[data-key="token 0 2"]').get_attribute("aria-pressed") == "true"
        assert "reads the vector of the chosen blank" in opened.locator("main").inner_text()


def test_lines_end_at_their_tokens_at_any_width(visit, page: str) -> None:
    opened = visit(page).page
    opened.wait_for_selector("[role=tab]")
    for width in (1400, 400, 1400):
        opened.set_viewport_size({"width": width, "height": 900})
        canvas, side = (opened.locator(selector).first.bounding_box() for selector in (".heads canvas", ".side"))
        assert abs(canvas["height"] - side["height"]) < 1
        opened.wait_for_function(
            """() => [...document.querySelectorAll(".heads canvas")].every((canvas) => {
              const {width, height} = canvas.getBoundingClientRect();
              return Math.hypot(canvas.height / devicePixelRatio - height, canvas.width / devicePixelRatio - width) < 2;
            })""",
            timeout=5000,
        )


def test_every_view_is_used_by_the_keyboard_alone(visit, page: str) -> None:
    opened = visit(page).page

    def focused() -> str | None:
        return opened.evaluate(
            "document.activeElement.dataset.key ?? document.activeElement.getAttribute('aria-label')"
        )

    def press(*keys: str) -> str | None:
        for key in keys:
            opened.keyboard.press(key)
        return focused()

    def stops() -> list[str | None]:
        """What the tab key reaches behind the tabs."""
        opened.locator("[role=tab][tabindex='0']").focus()
        reached: list[str | None] = []
        while (one := press("Tab")) is not None and one not in VIEWS:
            assert opened.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
            reached.append(one)
        return reached

    opened.wait_for_selector("[role=tab]")
    assert press("Tab") == "heads"
    assert stops() == ["layer", "head 0", "edges", "between", "side 0 0 0", "side 0 1 0"]
    opened.locator('[data-key="head 0"]').focus()
    assert press("ArrowRight", "Space") == "head 1"
    assert opened.locator('[data-key="head 1"]').get_attribute("aria-pressed") == "false"
    opened.locator('[data-key="side 0 0 0"]').focus()
    assert press("ArrowDown", "ArrowDown") == "side 0 0 2"
    assert opened.locator(".readout").inner_text().startswith("cat reads")
    assert press("Enter") == "side 0 0 2"
    for view, expected in {
        "model": ["map 0 0 0"],
        "neuron": ["layer", "head", "element", "token 0 2"],
        "table": ["layer", "head", "token 0 2", "softmax(QKᵀ / √d)", "× V", "= output of the head"],
        "layers": ["token 0 2", "blank 0 0"],
        "embeddings": ["token 0 2"],
    }.items():
        opened.locator("[role=tab][tabindex='0']").focus()
        assert press("ArrowRight", "Enter") == view
        assert stops() == expected
    opened.locator('[data-key="token 0 2"]').focus()
    assert press("ArrowRight", "Enter") == "token 0 3"
    assert "row 7 of" in opened.locator(".added").inner_text()
    opened.locator("#tab-neuron").click()
    opened.locator('[data-key="element"]').focus()
    press("ArrowRight", "ArrowRight")
    assert "element 2 of 0 to 7" in opened.locator(".here").inner_text()
    opened.locator("#tab-model").click()
    opened.locator('[data-key="map 0 0 0"]').focus()
    assert press("ArrowDown", "ArrowRight") == "map 0 1 1"
    assert "layer 2, head 2: " in opened.locator(".readout").inner_text()
    assert press("Enter") == "heads"
