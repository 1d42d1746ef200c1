"""How latencies are taken: by turns, often where it is cheap and once where it is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bertline.export import onnx_export


class Clock:
    """Time that passes only where a run takes it."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.log: list[str] = []

    def run(self, name: str, *seconds: float) -> Callable[[], None]:
        left = list(seconds)

        def take() -> None:
            self.log.append(name)
            self.now_s += left.pop(0) if len(left) > 1 else left[0]

        return take


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(onnx_export.time, "perf_counter", lambda: clock.now_s)
    return clock


def test_quick_runs_take_turns_and_the_first_is_left_out(clock: Clock) -> None:
    times = onnx_export._in_turns({"a": clock.run("a", 0.5, 0.01), "b": clock.run("b", 0.02)})
    assert clock.log == ["a", "b"] * 8
    assert times["a"] == pytest.approx([0.01] * 7)
    assert times["b"] == pytest.approx([0.02] * 7)


def test_slower_runs_are_repeated_less_often(clock: Clock) -> None:
    times = onnx_export._in_turns({"a": clock.run("a", 1.0), "b": clock.run("b", 0.5)})
    assert [len(each) for each in times.values()] == [3, 3]


def test_very_slow_ones_run_once(clock: Clock) -> None:
    times = onnx_export._in_turns({"a": clock.run("a", 40.0), "b": clock.run("b", 30.0)})
    assert times == {"a": [40.0], "b": [30.0]}


def test_the_machine_is_named_with_its_threads() -> None:
    assert onnx_export.machine_name().endswith(("thread", "threads"))
