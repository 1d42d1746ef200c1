"""What people come for is at most three clicks from a page that `make ui` opens."""

from __future__ import annotations

import re
from typing import Any

from browsing import Visit, shows_something

MOST = 3


class Journey:
    """Clicks on a page, counted."""

    def __init__(self, visit: Visit) -> None:
        self.page = visit.page
        self.clicks = 0

    def click(self, target: Any) -> None:
        """Click on what a person sees, once it is there."""
        self.clicks += 1
        assert self.clicks <= MOST
        target.click()

    def arrives_at(self, target: Any) -> None:
        """Wait for what the person came for."""
        target.first.wait_for()


def test_the_best_model_of_a_task(review, views: dict[str, str]) -> None:
    journey = Journey(review(views["best model of docs_library"]))
    journey.arrives_at(journey.page.get_by_role("link", name="bertline-docs_library"))
    journey.arrives_at(journey.page.get_by_text("champion"))
    journey.click(journey.page.get_by_role("link", name=re.compile(r"^smoke: MLM")))  # the pipeline that made it
    journey.arrives_at(journey.page.get_by_role("heading", name=re.compile(r"^smoke: MLM")))


def test_the_curves_of_two_pretrainings_on_one_chart(review, views: dict[str, str]) -> None:
    journey = Journey(review(views["pretraining curves"]))
    chart = journey.page.locator(".js-plotly-plot").first
    journey.arrives_at(chart)
    journey.arrives_at(chart.locator(".scatterlayer .trace").nth(1))
    curves = chart.evaluate("(chart) => chart.data.map((curve) => [curve.name, curve.x.length])")
    names = {name for name, _ in curves}  # a curve has a band around it, of the same name
    assert len(names) == 2
    assert all(re.match(r"pretrain: MLM \d\.\d\d$", name) for name in names)
    assert all(points >= 3 for _, points in curves)
    assert shows_something(chart)


def test_why_a_trial_failed(review, views: dict[str, str]) -> None:
    journey = Journey(review(views["failed trials of sweep@docs_library"]))
    journey.click(journey.page.get_by_role("link", name=re.compile(r"^encoder · trial \d$")).first)
    journey.arrives_at(journey.page.get_by_text(re.compile("^The loss of step .* training has diverged")))
    journey.arrives_at(journey.page.get_by_text("Failed", exact=True))
