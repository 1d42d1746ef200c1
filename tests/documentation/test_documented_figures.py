"""Every figure of README and documentation comes from a committed record."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import readme  # noqa: E402

from bertline.foundation.formats import signed  # noqa: E402

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


def test_a_run_of_ones_own_changes_no_record_that_git_tracks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readme, "ROOT", tmp_path)
    record = tmp_path / "artifacts/metrics/pretrain.json"
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    assert readme.tracked.__wrapped__(record) == "{}", "outside git, as in an archive of the source"
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    assert readme.tracked.__wrapped__(record) == "{}", "not tracked yet"
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    record.write_text('{"val/mlm_loss": 3.6}')
    assert readme.tracked.__wrapped__(record) == "{}"


def test_no_measured_figure_stands_outside_the_blocks() -> None:
    for page, text in TEXTS.items():
        outside = re.sub(r"<!-- (figures|generated): (\w+) -->.*?<!-- end -->", "", text, flags=re.DOTALL)
        if page.startswith("docs/notebooks/"):
            outside = PRINTED.sub("", outside)
            assert PERCENT.findall(outside) == [], page  # elsewhere those of papers are quoted
        assert MEASURED.findall(outside) == [], page


@pytest.mark.parametrize(
    ("difference", "verdict", "clause"),
    [
        (0.031, "better", "the encoder beats the strongest simple opponent (tuned 0.600)"),
        (-0.02, "worse", "the encoder is worse than the strongest simple opponent (tuned 0.600)"),
        (-0.02, "not shown", "the encoder cannot be told from the strongest simple opponent (tuned 0.600)"),
    ],
)
def test_the_sentence_of_a_task_is_its_recorded_verdict_over_pretrainings(monkeypatch, difference, verdict, clause):
    evaluated = {
        "docs_x/encoder/accuracy_mean": 0.6 + difference,
        "docs_x/encoder/accuracy_std": 0.004,
        "docs_x/tuned/accuracy": 0.6,
        "docs_x/weak/accuracy": 0.3,
        "docs_x/random_weights/accuracy_mean": 0.4,
    }
    of_sweep = {"encoder/difference_from_strongest": difference, "encoder/beats_strongest": 1}
    run = {"seed": 0, "evaluate": evaluated, "sweeps": {"docs_x": of_sweep}}
    over_runs = {"mean": difference, "low": difference - 0.01, "high": difference + 0.01, "verdict": verdict}
    monkeypatch.setattr(readme, "_metrics", lambda stage: evaluated)
    record = {"runs": [run, run], "tasks": {"docs_x/encoder": over_runs}}
    said = readme.sentence("docs_x", record)
    score, ends = f"{0.6 + difference:.3f}", " to ".join(map(signed, (difference - 0.01, difference + 0.01)))
    assert said == f"`docs_x`: {clause}, with accuracy {score}, {score}; difference {signed(difference)} ({ends})."
    differs = "the verdicts are the same" if verdict == "better" else "the encoder wins on `docs_x`"
    assert readme.of_one_report(record).endswith(f"in it, {differs}.")
