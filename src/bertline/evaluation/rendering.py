"""Pages from the templates next to this: one HTML file without other files, for light and dark schemes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from bertline.evaluation import html
from bertline.evaluation.task_section import settings_in_words, test_name, test_score
from bertline.foundation.formats import count, duration, percent, signed
from bertline.foundation.verdicts import NOISE_UNKNOWN

_FILTERS = (
    count, duration, percent, signed, html.in_unit, html.listing, html.metric_name, html.number_of, html.score,
    html.shortened, html.words, settings_in_words, test_name, test_score,
)  # fmt: skip


def rendered(template: str, **facts: Any) -> str:
    """Return a page of `templates/`; all text in it is escaped, except what is marked as HTML."""
    environment = Environment(
        loader=PackageLoader("bertline.evaluation"),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {one.__name__: one for one in (*_FILTERS, math.exp)}
    facts |= {
        "contents": [],
        "noise_unknown": f"{NOISE_UNKNOWN.capitalize()}.",
        "without_empty": _without_empty,
    }
    return environment.get_template(template).render(facts)


def _without_empty(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the head and the rows of a table without the columns whose cells are all empty or a dash."""
    columns = [place for place in range(len(head)) if not rows or any(row[place] not in ("", "–") for row in rows)]
    return [[line[place] for place in columns] for line in (head, *rows)]
