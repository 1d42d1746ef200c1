"""The figures of time in metrics.jsonl, on a clock on which every step takes a second and a quarter."""

from contextlib import contextmanager

import pytest

from bertline.foundation.metrics_log import read_metrics
from bertline.pretraining import callbacks, run
from bertline.pretraining.module import PretrainingModule
from bertline.pretraining.plan import RowLayout
from bertline.pretraining.probes import ValidationProbe
from bertline.pretraining.run import run_pretraining
from bertline.training.progress import TrainingClock
from pretraining_inputs import steps_of, stop_after

COMPUTING_S, WAITING_S, VALIDATING_S = 1.0, 0.25, 10.0
STEP_S = COMPUTING_S + WAITING_S


@pytest.fixture(autouse=True)
def seconds(monkeypatch):
    """Time goes by where a step computes, where it waits for data and where validation runs, and nowhere else."""
    now = [0.0]
    clip, probe = PretrainingModule._clip, ValidationProbe.probe

    class SteadyClock(TrainingClock):
        def __init__(self, before):
            super().__init__(before, now=lambda: now[0])

        @contextmanager
        def waiting(self):
            with super().waiting():
                yield
                now[0] += WAITING_S

    def clipping(module):
        now[0] += COMPUTING_S
        return clip(module)

    def validating(self, step):
        now[0] += VALIDATING_S
        return probe(self, step)

    monkeypatch.setattr(run, "TrainingClock", SteadyClock)
    monkeypatch.setattr(PretrainingModule, "_clip", clipping)
    monkeypatch.setattr(ValidationProbe, "probe", validating)
    monkeypatch.setattr(callbacks, "peak_rate", lambda device, precision: 1e9)


def speed_rows(job) -> dict[int, dict[str, float]]:
    """The figures of speed and time, by step."""
    return {
        row.step: {
            key: value
            for key, value in row.metrics.items()
            if key.startswith("perf/") and key not in ("perf/memory_bytes", "perf/time_left_s")
        }
        for row in read_metrics(job.metrics_path)
        if "train/loss" in row.metrics
    }


def tokens_of(job, steps: range) -> int:
    dataset = steps_of(job, RowLayout(packed=False, rows=None))
    return sum(dataset[step]["num_tokens"] for step in steps)


def test_a_row_tells_of_all_the_time_since_the_row_before(make_job):
    job = make_job()
    figures = run_pretraining(job)
    rows = speed_rows(job)
    first, last = rows[20], rows[30]
    assert first["perf/tokens_per_s"] == pytest.approx(tokens_of(job, range(20)) / (20 * STEP_S))
    assert last["perf/tokens_per_s"] == pytest.approx(tokens_of(job, range(20, 30)) / (10 * STEP_S))
    assert first["perf/data_wait_fraction"] == pytest.approx(WAITING_S / STEP_S)
    # Validation runs before the first step and after steps 10 and 20.
    assert first["perf/paused_fraction"] == pytest.approx(2 * VALIDATING_S / (2 * VALIDATING_S + 20 * STEP_S))
    assert last["perf/paused_fraction"] == pytest.approx(VALIDATING_S / (VALIDATING_S + 10 * STEP_S))
    assert figures["perf/tokens_per_s"] == pytest.approx((first["perf/tokens_per_s"] + last["perf/tokens_per_s"]) / 2)
    assert figures["train_time_s"] == pytest.approx(30 * STEP_S)


def test_a_stop_in_the_middle_of_a_row_leaves_its_figures_as_they_are(make_job, monkeypatch):
    alone, stopped = make_job("alone"), make_job("stopped")
    run_pretraining(alone)
    stop_after(stopped, 15, monkeypatch)
    run_pretraining(stopped)
    expected, found = speed_rows(alone), speed_rows(stopped)
    assert {"perf/tokens_per_s", "perf/mfu", "perf/data_wait_fraction", "perf/paused_fraction"} == set(found[20])
    for step in (20, 30):
        assert found[step] == pytest.approx(expected[step])


def test_the_time_left_is_in_the_rows_and_counts_the_validations_to_come(make_job, capsys):
    job = make_job(runtime__progress_every_s=0.0)
    run_pretraining(job)
    left = [row.metrics["perf/time_left_s"] for row in read_metrics(job.metrics_path) if "train/loss" in row.metrics]
    # From step 1 to step 20 there was one validation, after step 10; that before the first step does not count.
    assert left == pytest.approx([(19 * STEP_S + VALIDATING_S) * 10 / 19, 0.0])
    assert "step 5 of 30, 31 s left" in capsys.readouterr().out
