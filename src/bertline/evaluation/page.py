"""The frame of every page: one HTML file without other files, with its style and links within it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from string import Template

from bertline.evaluation.html import contents, escape
from bertline.evaluation.svg import chart_css


def framed(
    sections: Sequence[str],
    *,
    title: str,
    kicker: str,
    summary: str,
    footer: str,
    provenance: str | None = None,
    style: Sequence[str] = (),
) -> str:
    """Return a whole page; its head and its contents are the same for the report and for the pages of stages.

    Args:
        sections: Made by `html.section`; empty ones are left out of the contents.
        title: Plain text.
        kicker: What kind of page it is, in a few words of plain text.
        summary: HTML after the contents.
        footer: Plain text.
        provenance: HTML before the contents.
        style: CSS rules of this page alone.
    """
    folder = files("bertline.evaluation")
    header = [*([] if provenance is None else [provenance]), contents(sections), summary]
    return Template(folder.joinpath("page.html").read_text(encoding="utf-8")).substitute(
        title=escape(title),
        style="\n".join([folder.joinpath("report.css").read_text(encoding="utf-8") + chart_css(), *style]),
        kicker=escape(kicker),
        header="\n".join(header),
        sections="\n".join(sections),
        footer=escape(footer),
    )
