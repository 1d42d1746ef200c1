"""What benchmarks/chaos.py counts as lost, doubled and left over, and which faults it counts."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
import chaos
from chaos_faults import Chaos, due_steps

EXPECTED = frozenset({("train/loss", 20), ("train/loss", 40)})


def test_a_value_that_the_file_or_mlflow_lacks_is_lost():
    both = Counter(EXPECTED)
    assert chaos.lost(EXPECTED, both, both) == set()
    first = Counter({("train/loss", 20): 1})
    assert chaos.lost(EXPECTED, first, first) == {("train/loss", 40)}  # a resume dropped the row
    assert chaos.lost(EXPECTED, both, first) == chaos.lost(EXPECTED, first, both) == {("train/loss", 40)}
    assert chaos.lost(EXPECTED, both + Counter({("optim/lr", 20): 1}), both) == {("optim/lr", 20)}


def test_rows_that_are_twice_in_the_file_are_doubled(tmp_path):
    rows = [{"step": step, "time_s": 0.0, "metrics": {"train/loss": 1.0}} for step in (20, 40, 40)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert chaos.doubled(chaos.written_metrics(tmp_path)) == 1


@pytest.mark.parametrize(
    "name", [".step-00000025.pt.part", ".step-00000025.pt.sha256.0a1b2c3d", ".metrics.jsonl.0a1b2c3d", ".partial"]
)
def test_what_a_killed_process_leaves_is_found(name, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).touch()
    assert [path.name for path in chaos.leftovers(tmp_path)] == [name]


def test_locks_and_records_are_no_leftovers(tmp_path):
    for name in (".system.sampling", ".mlflow.db.lock", "submit.lock", "step-00000025.pt", "9c217ef4f18d", "log"):
        (tmp_path / name).touch()
    assert chaos.leftovers(tmp_path) == []


def test_another_fault_takes_the_place_of_one_that_finds_nothing(monkeypatch):
    workspace = SimpleNamespace(ranks=[], folder=Path("nowhere"))
    faults = Chaos(workspace, None, None, None, random.Random(1))  # type: ignore[arg-type]
    faults._client = SimpleNamespace(poll=lambda: 1)  # type: ignore[assignment]
    monkeypatch.setattr(Chaos, "_hit_mlflow", lambda self: True)
    for number in (1, 2):
        faults._hit(["rank", "client", "link", "disk", "mlflow"])
        assert faults.done == ["mlflow"] * number
    faults._hit(["rank", "client"])
    assert faults.done == ["mlflow"] * 2


@pytest.mark.parametrize("faults", [1, 3, 15])
def test_faults_are_spread_over_the_whole_training(faults):
    part = 24_000 / (faults + 1)
    for seed in range(20):
        due = due_steps(faults, 24_000, random.Random(seed))
        assert [int(step // part) for step in due] == list(range(faults))


def test_the_next_fault_waits_for_its_step_and_for_progress(monkeypatch):
    """A training that saves every 10 steps; a client that has ended once step 200 is reached."""
    saved = iter(range(0, 1000, 10))
    faults = Chaos(None, None, None, None, random.Random(1))  # type: ignore[arg-type]
    faults._client = SimpleNamespace(poll=lambda: None)  # type: ignore[assignment]
    now, hits = [0], []
    monkeypatch.setattr("time.sleep", lambda _: now.__setitem__(0, next(saved)))
    monkeypatch.setattr(Chaos, "_start", lambda self: None)
    monkeypatch.setattr(Chaos, "_step", lambda self: now[0])
    monkeypatch.setattr(Chaos, "_over", lambda self: now[0] >= 200)
    monkeypatch.setattr("chaos_faults.due_steps", lambda *_: [7, 8, 150])
    monkeypatch.setattr(Chaos, "_hit_mlflow", lambda self: hits.append(now[0]) or True)
    faults.run(3, ["mlflow"], 200)
    assert hits == [10, 20, 150]
    assert now == [200]
