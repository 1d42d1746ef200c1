"""The built documentation, as readers see it: on a telephone, a tablet and a desk, in light and in dark mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from browsing import shows_something

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = [page.relative_to(DOCS).with_suffix("").as_posix() for page in sorted(DOCS.rglob("*.md"))]
PAGES = [page for page in PAGES if not page.startswith("_build")]


@pytest.mark.parametrize("name", [*PAGES, "genindex", "py-modindex", "search"])
def test_text_is_whole_and_large_enough_and_pictures_show_something(visit, documentation: str, name: str) -> None:
    opened = visit(f"{documentation}/{name}.html", width=400)
    for width in (400, 800, 1400):
        opened.page.set_viewport_size({"width": width, "height": 900})
        assert opened.cut() == [], width
        assert opened.tiny() == [], width
        assert opened.blank() == [], width
    assert opened.overlapping() == []
    for picture in opened.page.locator("article img:not(.toggler)").all():
        assert shows_something(picture)


def test_the_code_of_every_page_is_read_in_dark_mode_too(visit, documentation: str) -> None:
    page = visit(f"{documentation}/tutorial.html", scheme="dark").page
    background, text = page.evaluate(
        """() => ["backgroundColor", "color"].map((name) =>
          getComputedStyle(document.querySelector("article .highlight"))[name].match(/\\d+/g).map(Number))"""
    )
    assert max(background[:3]) < 64
    assert min(text[:3]) > 160
