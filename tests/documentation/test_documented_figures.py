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
        outside = re.sub(r"<!-- figures: (\w+) -->.*?<!-- end -->", "", text, flags=re.DOTALL)
        assert MEASURED.findall(outside) == [], page


def test_every_block_is_shown_on_some_page() -> None:
    shown = {name for text in TEXTS.values() for name in re.findall(r"<!-- figures: (\w+) -->", text)}
    assert shown == set(readme.BLOCKS)


def test_a_changed_record_makes_its_block_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readme, "_metrics", changed(readme._metrics))
    assert readme.rewritten(TEXTS["docs/tutorial.md"]) != TEXTS["docs/tutorial.md"]


def test_a_stale_page_fails_the_check_and_is_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- figures: verdicts -->\nold\n<!-- end -->\nafter\n")
    monkeypatch.setattr(readme, "PAGES", (page,))
    monkeypatch.setattr(readme, "ROOT", tmp_path)
    monkeypatch.setitem(readme.BLOCKS, "verdicts", lambda: "new")
    assert readme.main(["--check"]) == 1
    assert readme.main([]) == 0
    assert page.read_text() == "before\n<!-- figures: verdicts -->\nnew\n<!-- end -->\nafter\n"
    assert readme.main(["--check"]) == 0


def test_each_training_of_the_learning_table_has_its_own_time_and_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    record = {
        "arguments": {"model": "tiny", "length": 32, "threads": 2, "steps": 4000},
        "seeds": [{}, {}, {}],
        "ours": "A",
        "ours_same_optimizer": "B",
        "peer": "C",
        "steps_peer_equal_time": 1900.4,
        "time_s": 11,
        "time_s_same_optimizer": 12,
        "time_s_peer": 13,
        "time_s_peer_equal_time": 14,
        "loss_ours": 1.1,
        "loss_ours_same_optimizer": 1.2,
        "loss_peer_equal_steps": 1.3,
        "loss_peer_equal_time": 1.4,
        "same_optimizer_difference": -0.1,
        "same_optimizer_standard_error": 0.011,
        "equal_time_difference": -0.3,
        "equal_time_standard_error": 0.022,
    }
    monkeypatch.setattr(readme, "_read", lambda path: record)
    table = readme.learning()
    assert table.splitlines()[2:6] == [
        "| A | 4,000 | 11 s | 1.100 nats |",
        "| B | 4,000 | 12 s | 1.200 nats |",
        "| C | 4,000 | 13 s | 1.300 nats |",
        "| C | 1,900 | 14 s | 1.400 nats |",
    ]
    assert "−0.100 nats (standard error 0.011)" in table.replace("\n", " ")
    assert "−0.300 (0.022)" in table


@pytest.mark.parametrize(
    ("difference", "verdict", "clause"),
    [
        (0.031, "better", "the encoder beats the strongest simple opponent (tuned 0.600)"),
        (-0.02, "worse", "the encoder is worse than the strongest simple opponent (tuned 0.600)"),
        (-0.02, "not shown", "the encoder cannot be told from the strongest simple opponent (tuned 0.600)"),
    ],
)
def test_the_sentence_of_a_task_is_its_recorded_verdict_over_pretrainings(
    monkeypatch: pytest.MonkeyPatch, difference: float, verdict: str, clause: str
) -> None:
    evaluated = {
        "docs_x/encoder/accuracy_mean": 0.6 + difference,
        "docs_x/encoder/accuracy_std": 0.004,
        "docs_x/tuned/accuracy": 0.6,
        "docs_x/weak/accuracy": 0.3,
        "docs_x/random_weights/accuracy_mean": 0.4,
    }
    run = {"evaluate": evaluated, "sweeps": {"docs_x": {"encoder/difference_from_strongest": difference}}}
    over_runs = {"mean": difference, "low": difference - 0.01, "high": difference + 0.01, "verdict": verdict}
    monkeypatch.setattr(readme, "_metrics", lambda stage: evaluated)
    said = readme.sentence("docs_x", {"runs": [run, run], "tasks": {"docs_x/encoder": over_runs}})
    score, ends = f"{0.6 + difference:.3f}", " to ".join(map(signed, (difference - 0.01, difference + 0.01)))
    assert said == f"`docs_x`: {clause}, with accuracy {score}, {score}; difference {signed(difference)} ({ends})."


def changed(read):  # type: ignore[no-untyped-def]
    def other(stage: str) -> dict[str, float]:
        return {key: value + 1 if "mlm_loss" in key else value for key, value in read(stage).items()}

    return other
