"""The feeds against a store that forgets nothing and can be made to fail."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertline.foundation.metrics_log import MetricsLog
from bertline.tracking.feeds import MetricsFeed, Turn


class FakeRun:
    def __init__(self, points: list[tuple[str, float, float, int]]) -> None:
        self.data = self
        self.metrics = {key: value for key, value, _, _ in points}


class FakeStore:
    """Keeps points as MLflow would; `fail_after` points of a call it loses the connection."""

    def __init__(self) -> None:
        self.points: list[tuple[str, float, float, int]] = []
        self.fail_after: int | None = None

    def get_run(self, run_id: str) -> FakeRun:
        return FakeRun(self.points)

    def known_steps(self, run_id: str, key: str) -> set[int]:
        return {step for name, _, _, step in self.points if name == key}

    def log_points(self, run_id: str, points: list[tuple[str, float, float, int]]) -> None:
        self.points.extend(points[: self.fail_after])
        if self.fail_after is not None:
            self.fail_after = None
            raise ConnectionError("lost")

    def steps(self) -> list[int]:
        return [step for _, _, _, step in self.points]


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


def feed_of(store: Any, path: Path) -> MetricsFeed:
    return MetricsFeed(store, "run", path)


def test_rows_are_sent_as_the_file_grows(store: FakeStore, metrics_file: Path) -> None:
    log, feed = MetricsLog(metrics_file), feed_of(store, metrics_file)
    feed.poll()
    log.log(1, {"train/loss": 2.0})
    feed.poll()
    log.log(2, {"train/loss": 1.5})
    feed.poll()
    feed.poll()
    assert store.steps() == [1, 2]


def test_a_half_written_row_waits_for_its_end(store: FakeStore, metrics_file: Path) -> None:
    row = json.dumps({"step": 7, "time_s": 1.0, "metrics": {"a": 1.0}})
    feed = feed_of(store, metrics_file)
    metrics_file.write_text(row[:10])
    feed.poll()
    assert store.points == []
    metrics_file.write_text(row + "\n")
    feed.poll()
    assert store.steps() == [7]


def test_rows_keep_the_time_at_which_they_were_measured(store: FakeStore, metrics_file: Path) -> None:
    metrics_file.write_text('{"step": 3, "time_s": 1234.5, "metrics": {"a": 1.0}}\n')
    feed_of(store, metrics_file).poll()
    assert store.points == [("a", 1.0, 1234.5, 3)]


def test_a_second_feeder_after_the_first_repeats_nothing(store: FakeStore, metrics_file: Path) -> None:
    log = MetricsLog(metrics_file)
    for step in range(10):
        log.log(step, {"a": step, "b": step})
    first = feed_of(store, metrics_file)
    first.close()
    log.log(10, {"a": 10, "b": 10})
    feed_of(store, metrics_file).close()
    assert sorted(store.steps()) == sorted(list(range(11)) * 2)


@pytest.mark.parametrize("arrived", [0, 3, 5])
def test_a_batch_that_arrived_in_part_is_completed_not_repeated(
    store: FakeStore, metrics_file: Path, arrived: int
) -> None:
    log = MetricsLog(metrics_file)
    for step in range(5):
        log.log(step, {"a": step})
    feed = feed_of(store, metrics_file)
    store.fail_after = arrived
    with pytest.raises(ConnectionError):
        feed.poll()
    feed.poll()
    assert store.steps() == [0, 1, 2, 3, 4]


def test_rows_taken_back_by_a_resume_are_not_sent_a_second_time(store: FakeStore, metrics_file: Path) -> None:
    log, feed = MetricsLog(metrics_file), feed_of(store, metrics_file)
    for step in range(6):
        log.log(step, {"a": step})
    feed.poll()
    log.keep_up_to(3)
    for step in range(4, 9):
        log.log(step, {"a": step})
    feed.poll()
    assert store.steps() == list(range(9))


def test_a_row_that_stands_twice_in_the_file_is_sent_once(store: FakeStore, metrics_file: Path) -> None:
    log = MetricsLog(metrics_file)
    log.log(1, {"a": 1.0})
    log.log(1, {"a": 1.0, "b": 2.0})
    feed_of(store, metrics_file).poll()
    assert sorted(key for key, *_ in store.points) == ["a", "b"]


def test_of_two_feeders_at_once_only_one_sends_and_the_other_takes_over(store: FakeStore, metrics_file: Path) -> None:
    MetricsLog(metrics_file).log(1, {"a": 1.0})
    first, second = feed_of(store, metrics_file), feed_of(FakeStore(), metrics_file)
    first.poll()
    assert not Turn(metrics_file).taken()
    second.poll()
    first.close()
    assert Turn(metrics_file).taken()


@pytest.mark.usefixtures("no_locks")
def test_a_curve_is_sent_from_a_file_system_without_locks(store: FakeStore, metrics_file: Path) -> None:
    MetricsLog(metrics_file).log(1, {"a": 1.0})
    feed_of(store, metrics_file).close()
    assert store.steps() == [1]


def test_a_long_file_is_sent_in_rounds_and_whole(store: FakeStore, metrics_file: Path) -> None:
    rows = (json.dumps({"step": step, "time_s": 1.0, "metrics": {"a": 1.0}}) for step in range(1234))
    metrics_file.write_text("\n".join(rows) + "\n")
    feed_of(store, metrics_file).close()
    assert store.steps() == list(range(1234))
