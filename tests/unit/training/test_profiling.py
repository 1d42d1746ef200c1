"""What a profile of a few steps writes."""

import gzip
import json
import types

import torch
from torch.autograd import DeviceType

from bertline.pretraining.profiling import (
    TABLE_NAME,
    TRACE_NAME,
    StepProfiler,
    operations_table,
)

CPU = torch.device("cpu")


def event(key, milliseconds, *, count=4, on_gpu=False, mark=False):
    return types.SimpleNamespace(
        key=key,
        count=count,
        device_type=DeviceType.CUDA if on_gpu else DeviceType.CPU,
        self_cpu_time_total=0 if on_gpu else 1e3 * milliseconds,
        self_device_time_total=1e3 * milliseconds if on_gpu else 0,
        is_user_annotation=mark,
    )


def take_steps(profiler: StepProfiler, count: int) -> None:
    matrix = torch.ones(128, 128)
    for _ in range(count):
        (matrix @ matrix).sum()
        profiler.step()


def test_the_steps_are_recorded_and_the_costliest_operation_leads_the_table(tmp_path):
    profiler = StepProfiler(tmp_path / "profile", CPU, num_steps=3)
    take_steps(profiler, 2)  # before the start: nothing
    profiler.start()
    take_steps(profiler, 3)
    assert not profiler.is_written
    take_steps(profiler, 1)
    assert profiler.is_written
    take_steps(profiler, 5)

    trace = json.loads(gzip.decompress((tmp_path / "profile" / TRACE_NAME).read_bytes()))
    assert sum(event.get("name") == "aten::mm" for event in trace["traceEvents"]) == 3
    table = (tmp_path / "profile" / TABLE_NAME).read_text()
    assert table.startswith("3 steps of ")
    line = next(line for line in table.splitlines() if line.endswith("aten::mm"))
    assert float(line.split()[2]) == 1.0  # calls per step


def test_a_profile_that_is_given_up_writes_nothing(tmp_path):
    profiler = StepProfiler(tmp_path / "profile", CPU, num_steps=3)
    profiler.start()
    take_steps(profiler, 2)
    profiler.stop()
    take_steps(profiler, 5)
    assert not profiler.is_written
    assert not (tmp_path / "profile").exists()


def test_the_table_has_ten_operations_by_their_own_time_and_the_rest_in_a_line():
    events = [event(f"op{number}", number) for number in range(1, 13)] + [event("ProfilerStep#2", 500)]
    table = operations_table(events, CPU, num_steps=2, seconds_a_step=0.078)
    lines = table.splitlines()
    assert lines[0] == "2 steps of 78.00 ms each; the main process computes for 50 % of that time"
    assert [line.split()[-1] for line in lines[3:13]] == [f"op{number}" for number in range(12, 2, -1)]
    assert lines[3].split() == ["7.7%", "6.000", "2.0", "op12"]
    assert lines[13].split() == ["1.9%", "1.500", "2", "others"]
    assert len(lines) == 14


def test_on_a_gpu_its_kernels_are_listed_without_marks_and_without_what_launched_them():
    events = [
        event("aten::mm", 9),
        event("gemm", 30, on_gpu=True),
        event("ProfilerStep#3", 99, on_gpu=True),
        event("Optimizer.step", 50, on_gpu=True, mark=True),
    ]
    table = operations_table(events, torch.device("cuda"), num_steps=1, seconds_a_step=0.04)
    assert "the GPU computes for 75 % of that time" in table
    assert [line.split()[-1] for line in table.splitlines()[3:]] == ["gemm"]
