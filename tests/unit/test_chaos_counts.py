"""What benchmarks/chaos.py counts as lost, doubled and left over, and which faults it counts."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import chaos

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
