"""Every figure of README and documentation comes from a committed record."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import readme  # noqa: E402

TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in readme.PAGES}
# What only a measurement gives: a score with three digits, a spread, a speed, a factor.
MEASURED = re.compile(r"\d ± \d|\b0\.\d{3}\b|\d[\d.]* (?:k )?tokens/s|\d[\d.]* times as fast|\d\.\d+ nats")
PERCENT = re.compile(r"\d\.\d+ ?%")
PRINTED = re.compile(r"^~~~text\n.*?\n~~~$|^<div>\n.*?\n</div>$", re.DOTALL | re.MULTILINE)
"""What cells of a notebook print, on its page."""


@pytest.fixture(autouse=True)
def tracked_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The records that git tracks: `make repro` writes those of another processor into the working tree."""
    monkeypatch.setattr(readme, "_text", readme.tracked)


def test_the_blocks_are_what_the_records_say() -> None:
    stale = [page for page, text in TEXTS.items() if readme.rewritten(text) != text]
    assert stale == [], "run python benchmarks/readme.py, and `git add` the records"


def test_no_measured_figure_stands_outside_the_blocks() -> None:
    for page, text in TEXTS.items():
        outside = re.sub(r"<!-- (figures|generated): (\w+) -->.*?<!-- end -->", "", text, flags=re.DOTALL)
        if page.startswith("docs/notebooks/"):
            outside = PRINTED.sub("", outside)
            assert PERCENT.findall(outside) == [], page  # elsewhere those of papers are quoted
        assert MEASURED.findall(outside) == [], page
