"""Load of this machine: processor, memory, disk, network and GPUs, sampled to a file of the run
folder.

The process that does the work samples, not its recipe: on a cluster the recipe is on a login node.
Of each machine, one process samples. Tracking sends the file, so a sample is no network call of the
training process. Names are those that MLflow shows as system metrics:
`system/cpu_utilization_percentage`, and with several nodes
`system/NODE/cpu_utilization_percentage`.
"""

import os
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil

from bertline.foundation.errors import BertlineError
from bertline.foundation.files import lock_file
from bertline.foundation.metrics_log import MetricsLog, read_metrics

PATTERN = "system*.jsonl"
"""Files of all nodes in a run folder."""
_MEGABYTE = 1e6  # MLflow's
# With one of these above 1, the processes of one run are on several nodes, whatever the
# configuration says.
_SLURM_COUNTS = ("SLURM_JOB_NUM_NODES", "SLURM_ARRAY_TASK_COUNT")


def node_name(num_nodes: int, environment: Mapping[str, str]) -> str | None:
    """Return the name of this machine in a run of several nodes, Slurm's before the host's; None in
    a run of one.

    >>> node_name(1, {}), node_name(2, {"SLURMD_NODENAME": "gpu7"})
    (None, 'gpu7')
    """
    counts = [int(environment[name]) for name in _SLURM_COUNTS if environment.get(name, "").isdecimal()]
    if max([num_nodes, *counts]) == 1:
        return None
    return re.sub(r"[^\w.-]", "-", environment.get("SLURMD_NODENAME") or socket.gethostname())


@contextmanager
def load_sampled(folder: Path, every_s: float, *, node: str | None = None) -> Iterator[None]:
    """Append the load of this machine to `system.jsonl`, or `system.NODE.jsonl`, until the block
    ends.

    The rows have the form of `metrics.jsonl`, and steps count on after those that the file has. If
    another process of this machine samples to the same file, the block runs without. A sample that
    cannot be written ends the sampling, not the block.
    """
    name = "system" if node is None else f"system.{node}"
    prefix = "system/" if node is None else f"system/{node}/"
    with (folder / f".{name}.sampling").open("w") as handle:
        if lock_file(handle) is False:
            yield
            return
        ended = threading.Event()
        sampling = (folder / f"{name}.jsonl", prefix, every_s, ended)
        thread = threading.Thread(target=_sample, args=sampling, name="system load", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(timeout=5.0)


Sensor = Callable[[], dict[str, float]]


def _sample(path: Path, prefix: str, every_s: float, ended: threading.Event) -> None:
    log, sensors = MetricsLog(path), _sensors()
    with suppress(BertlineError, OSError):
        last = max((row.step for row in read_metrics(path)), default=-1) if path.exists() else -1
        log.keep_up_to(last)  # without the torn line of a killed process
        while not ended.wait(every_s):
            last += 1
            values: dict[str, float] = {}
            for sensor in sensors:
                with suppress(Exception):  # a driver that does not know a figure; the others are there
                    values |= sensor()
            log.log(last, {f"{prefix}{key}": value for key, value in values.items()})


def _sensors() -> list[Sensor]:
    """Return functions that read the load, as far as drivers are there."""
    begun = psutil.net_io_counters()

    def machine() -> dict[str, float]:
        memory, disk, network = psutil.virtual_memory(), psutil.disk_usage(os.sep), psutil.net_io_counters()
        return {
            "cpu_utilization_percentage": psutil.cpu_percent(),
            "system_memory_usage_megabytes": memory.used / _MEGABYTE,
            "system_memory_usage_percentage": 100 * memory.used / memory.total,
            "disk_usage_percentage": disk.percent,
            "disk_usage_megabytes": disk.used / _MEGABYTE,
            "disk_available_megabytes": disk.free / _MEGABYTE,
            "network_receive_megabytes": (network.bytes_recv - begun.bytes_recv) / _MEGABYTE,
            "network_transmit_megabytes": (network.bytes_sent - begun.bytes_sent) / _MEGABYTE,
        }

    psutil.cpu_percent()  # the first call has nothing to compare with
    return [machine, *_gpu_sensors()]


def _gpu_sensors() -> list[Sensor]:
    try:
        import pynvml

        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except Exception:  # not installed, or without a driver
        return []

    def gpu(index: int) -> dict[str, float]:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handles[index])
        load = {
            f"gpu_{index}_memory_usage_percentage": round(memory.used / memory.total * 100, 1),
            f"gpu_{index}_memory_usage_megabytes": memory.used / _MEGABYTE,
        }
        with suppress(pynvml.NVMLError):  # a GPU in parts (MIG) does not know it
            utilization = pynvml.nvmlDeviceGetUtilizationRates(handles[index])
            load[f"gpu_{index}_utilization_percentage"] = utilization.gpu
        return load

    return [partial(gpu, index) for index in range(len(handles))]
