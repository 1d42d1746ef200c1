"""The report and the errors of a task, as files that a browser opens: on a telephone, a tablet and a desk, in light and
in dark mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from browsing import shows_something

WIDTHS = (400, 800, 1400)
TASKS = ("docs_library", "docs_match", "docs_parameters", "docs_search")
UNFOLD = "for (const one of document.querySelectorAll('details')) one.open = true"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_report_is_whole_at_every_width(visit, finished: Path, width: int, scheme: str) -> None:
    opened = visit((finished / "artifacts/evaluate/report.html").as_uri(), width=width, scheme=scheme)
    opened.page.evaluate(UNFOLD)
    assert opened.cut() == []
    assert opened.tiny() == []
    assert opened.overlapping() == []
    assert opened.blank() == []
    page, ink = opened.page.evaluate(
        """() => [document.body, document.querySelector("h1")].map((element, place) =>
          Number(getComputedStyle(element)[["backgroundColor", "color"][place]].match(/\\d+/)[0]))"""
    )
    assert (page > 200 and ink < 80) if scheme == "light" else (page < 60 and ink > 200)
    charts = opened.page.locator("figure svg").all()
    assert len(charts) >= 12
    for chart in charts[:: 1 if (width, scheme) == (1400, "dark") else 4]:
        assert shows_something(chart), chart.get_attribute("aria-label")


def test_every_chart_draws_data_and_not_only_axes(visit, finished: Path) -> None:
    page = visit((finished / "artifacts/evaluate/report.html").as_uri()).page
    drawn = page.locator("figure svg").evaluate_all(
        """(charts) => charts.map((chart) => [chart.ariaLabel,
          [...chart.querySelectorAll("path, use")].filter((one) => /--c\\d/.test(one.getAttribute("style"))).length])"""
    )
    assert [label for label, shapes in drawn if shapes == 0] == []


def test_contents_lead_to_sections_and_nothing_leads_elsewhere(visit, finished: Path) -> None:
    page = visit((finished / "artifacts/evaluate/report.html").as_uri()).page
    for link in page.locator("nav a").all():
        link.click()
        title = page.locator(f"{link.get_attribute('href')} h2")
        assert title.inner_text() == link.inner_text()
        assert title.evaluate("(title) => title.getBoundingClientRect().top < innerHeight")
        page.evaluate("scrollTo(0, 0)")
    addresses = page.locator("a").evaluate_all("(links) => links.map((link) => link.getAttribute('href'))")
    assert [address for address in addresses if not address.startswith("#")] == ["../pages/data.html"]
