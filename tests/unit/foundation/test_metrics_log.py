"""metrics.jsonl survives kills and holds each step once after a resume."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertline.foundation.errors import MachineError
from bertline.foundation.metrics_log import MetricsLog, read_metrics


def test_rows_after_the_checkpoint_are_dropped_on_resume(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for step in range(5):
        log.log(step, {"train/mlm_loss": 9.0 - step})
    log.keep_up_to(2)
    log.log(3, {"train/mlm_loss": 1.0})
    rows = list(read_metrics(log.path))
    assert [row.step for row in rows] == [0, 1, 2, 3]
    assert rows[-1].metrics == {"train/mlm_loss": 1.0}


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.log(1, {"a": 1})
    log.close()
    with log.path.open("a") as handle:
        handle.write('{"step": 2, "metr')
    assert [row.step for row in read_metrics(log.path)] == [1]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match=r"file/metrics.jsonl cannot be written"):
        MetricsLog(tmp_path / "file" / "metrics.jsonl").log(1, {"a": 1})
