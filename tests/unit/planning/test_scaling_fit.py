"""What benchmarks/scaling.py fits and predicts, on measurements that the model itself has made."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bertline.planning.communication import Computing, Link, step_s

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
import scaling

COMPUTING = Computing(forward_s=0.2, backward_s=0.4, update_s=0.05)
FACTS = {"gradient_bytes": 2e7, "buckets": [1e6] * 12 + [8e6]}
SPEEDS = (200.0, 400.0, 800.0)


def measurements(*, efficiency=0.9, latency_s=1e-3, overlap=0.6, slower=1.0):
    found = {}
    for ranks in scaling.RANKS:
        for mbit in SPEEDS:
            link = Link(bytes_per_s=mbit * 125_000, efficiency=efficiency, latency_s=latency_s)
            step = step_s(COMPUTING, FACTS["buckets"], ranks, link, overlap=overlap)
            found[ranks, mbit] = {
                "step_s": step * (slower if ranks == 4 else 1.0),
                "computing": COMPUTING,
                "all_reduce_s": link.all_reduce_s(FACTS["gradient_bytes"], ranks),
                "small_s": link.all_reduce_s(0.0, ranks),
            }
    return found


def test_the_fit_finds_what_the_measurements_were_made_with():
    link, overlap = scaling.fitted(measurements(), SPEEDS, FACTS)
    assert (link.efficiency, link.latency_s, overlap) == pytest.approx((0.9, 1e-3, 0.6), rel=1e-6)


def test_four_processes_and_the_middle_speed_are_predicted_and_nothing_else():
    found = measurements()
    rows = scaling.compared(found, *scaling.fitted(found, SPEEDS, FACTS), FACTS)
    assert {(row["ranks"], row["mbit"]) for row in rows if row["predicted"]} == {(2, 400.0), *((4, s) for s in SPEEDS)}
    assert max(abs(row["error"]) for row in rows) < 1e-3


def test_four_processes_that_are_slower_than_predicted_count_as_error():
    found = measurements(slower=1.5)
    rows = scaling.compared(found, *scaling.fitted(found, SPEEDS, FACTS), FACTS)
    assert max(abs(row["error"]) for row in rows if row["predicted"]) == pytest.approx(1 / 3, abs=1e-3)
