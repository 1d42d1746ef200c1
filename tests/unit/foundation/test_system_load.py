import json
import time
from pathlib import Path

from bertline.foundation.metrics_log import MetricsLog, read_metrics
from bertline.foundation.system_load import load_sampled


def samples(path: Path, at_least: int) -> list[int]:
    """The steps of a file that has so many rows, once it has them."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and (not path.exists() or len(list(read_metrics(path))) < at_least):
        time.sleep(0.01)
    return [row.step for row in read_metrics(path)]


def test_samples_go_to_a_file_of_the_node_and_count_on_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "system.gpu1.jsonl"
    log = MetricsLog(path)
    for step in range(3):
        log.log(step, {"system/gpu1/cpu_utilization_percentage": 1.0})
    with path.open("a") as handle:
        handle.write('{"step": 3, "time_s": 17')  # the torn line of a killed process
    with load_sampled(tmp_path, 0.01, node="gpu1"):
        steps = samples(path, 5)
    assert steps == list(range(len(steps)))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert {key.rpartition("/")[0] for row in rows for key in row["metrics"]} == {"system/gpu1"}
    assert 0 <= rows[-1]["metrics"]["system/gpu1/system_memory_usage_percentage"] <= 100


def test_of_two_processes_of_a_machine_one_samples(tmp_path: Path) -> None:
    path = tmp_path / "system.jsonl"
    with load_sampled(tmp_path, 0.01), load_sampled(tmp_path, 0.001):
        steps = samples(path, 3)
    assert steps == list(range(len(steps)))
    with load_sampled(tmp_path, 0.01):  # the lock is free again
        assert len(samples(path, len(steps) + 1)) > len(steps)
