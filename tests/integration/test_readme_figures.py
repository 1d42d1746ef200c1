"""Every figure of the README comes from a committed record."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import readme  # noqa: E402

TEXT = readme.README.read_text(encoding="utf-8")
# What only a measurement gives: a score with three digits, a spread, a speed, a factor.
MEASURED = re.compile(r"\d ± \d|\b0\.\d{3}\b|\d[\d.]* (?:k )?tokens/s|\d[\d.]* times as fast|\d\.\d+ nats")


def test_the_blocks_are_what_the_records_say() -> None:
    assert readme.rewritten(TEXT) == TEXT, "run python benchmarks/readme.py"


def test_no_measured_figure_stands_outside_the_blocks() -> None:
    outside = re.sub(r"<!-- figures: (\w+) -->.*?<!-- end -->", "", TEXT, flags=re.DOTALL)
    outside = re.sub(r"^experiment=bert_base on one A100.*?```", "", outside, flags=re.DOTALL | re.MULTILINE)
    assert MEASURED.findall(outside) == []


def test_a_changed_record_makes_its_block_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readme, "_metrics", changed(readme._metrics))
    assert readme.rewritten(TEXT) != TEXT


def changed(read):  # type: ignore[no-untyped-def]
    def other(stage: str) -> dict[str, float]:
        return {key: value + 1 if "mlm_loss" in key else value for key, value in read(stage).items()}

    return other
