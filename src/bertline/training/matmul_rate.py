"""Speed of a device at multiplying large matrices, of which utilisation is a fraction.

Utilisation is comparable between runs only if all are held against the same peak. The first training of a machine
measures it, in four seconds that do not count as training, and keeps it in the user's cache folder; later trainings
read it there.
"""

from __future__ import annotations

import functools
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import torch

from bertline.foundation.errors import BertlineError
from bertline.foundation.files import locked, read_json, write_json
from bertline.foundation.parallel import processor_name
from bertline.foundation.progress import say
from bertline.training.devices import Precision

_FILE_NAME = "matmul_rates.json"
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_SHAPE_ON_GPU = (8192, 8192, 8192)
_SHAPE_ON_CPU = (4096, 768, 3072)  # BERT-base's feed-forward on 32 sequences of 128
_PRODUCTS_A_SAMPLE_ON_GPU = 10  # one takes 1 to 2 ms: too short to time on its own
_HOPELESS_S = 0.25
# A processor that was idle starts above the clock that it can hold, and one that shares its cores is slowed at times.
_WARM_UP_S = 1.0
_HOT_S = 3.0
_WINDOW_S = 0.5


def hot_matmul_rate(device: torch.device, precision: Precision) -> float:
    """Measure floating-point operations per second of one large product, (m, k) by (k, n), of 2 m k n operations.

    The rate is what a hot device sustains: that of the best half second of three, after a second that warms it up. On
    an accelerator m, k and n are 8192; on the CPU, with PyTorch's current number of threads, 4096, 768 and 3072. The
    random values come from a separate generator, so training draws the same numbers with and without the measurement.
    On CUDA, the peak memory statistics are reset afterwards.

    Args:
        device: The device.
        precision: fp32 uses PyTorch's current setting (TF32 if that is allowed).
    """
    rate = _rate(device, precision)
    if device.type == "cuda":  # the matrices are freed by now
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    return rate


def _rate(device: torch.device, precision: Precision) -> float:
    on_cpu = device.type == "cpu"
    rows, inner, columns = _SHAPE_ON_CPU if on_cpu else _SHAPE_ON_GPU
    generator = torch.Generator(device).manual_seed(0)
    left, right = (
        torch.randn(shape, device=device, generator=generator).to(_DTYPES[precision])
        for shape in ((rows, inner), (inner, columns))
    )
    output = torch.empty(rows, columns, device=device, dtype=_DTYPES[precision])
    if on_cpu:
        # If the CPU emulates bf16, the whole product would take minutes.
        sixteenth = rows // 16
        seconds = _seconds_of_a_product(left[:sixteenth], right, output[:sixteenth], times=1)
        if seconds > _HOPELESS_S:
            return 2.0 * sixteenth * inner * columns / seconds
    else:
        _seconds_of_a_product(left, right, output, times=_PRODUCTS_A_SAMPLE_ON_GPU)
    times = 1 if on_cpu else _PRODUCTS_A_SAMPLE_ON_GPU
    seconds = _best_window(lambda: _seconds_of_a_product(left, right, output, times=times))
    return 2.0 * rows * inner * columns / seconds


def _best_window(sample: Callable[[], float]) -> float:
    begun = time.perf_counter()
    while time.perf_counter() - begun < _WARM_UP_S:
        sample()
    best_s = math.inf
    begun = time.perf_counter()
    while best_s == math.inf or time.perf_counter() - begun < _HOT_S:
        window: list[float] = []
        opened = time.perf_counter()
        while time.perf_counter() - opened < _WINDOW_S:
            window.append(sample())
        best_s = min(best_s, statistics.fmean(window))
    return best_s


def _seconds_of_a_product(left: torch.Tensor, right: torch.Tensor, output: torch.Tensor, *, times: int) -> float:
    wait = torch.cpu.synchronize if left.device.type == "cpu" else torch.accelerator.synchronize
    wait(left.device)
    begun = time.perf_counter()
    for _ in range(times):
        torch.mm(left, right, out=output)
    wait(left.device)
    return (time.perf_counter() - begun) / times


def peak_rate(device: torch.device, precision: Precision) -> float:
    """Return floating-point operations per second of large matrix products, as `hot_matmul_rate` measures them.

    The result is kept for the model of the device, the precision, the number of threads and PyTorch's version. Delete
    the file to measure again, for example where other work ran meanwhile.
    """
    return _read_once(device, precision, _key(device, precision))


def rates_file() -> Path:
    """Return the file of this user's machines: `bertline/matmul_rates.json` in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bertline" / _FILE_NAME


@functools.cache
def _read_once(device: torch.device, precision: Precision, key: str) -> float:
    with _turn():
        kept = _kept()
        if key in kept:
            return kept[key]
        rate = hot_matmul_rate(device, precision)
        file = rates_file()
        where = f"kept in {file}"
        try:
            write_json(file, {**kept, key: rate})
        except (OSError, BertlineError) as error:
            where = f"it could not be kept: {error}"
        say(
            f"this machine sustains {rate / 1e9:,.0f} GFLOP/s in matrix products ({key}); utilisation is a fraction of "
            f"that. Measured once, in 4 s; {where}"
        )
        return rate


def _key(device: torch.device, precision: Precision) -> str:
    if device.type == "cpu":
        name = f"{processor_name()}, threads: {torch.get_num_threads()}"
    else:
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        if precision == "fp32":
            name += f", fp32 products: {torch.get_float32_matmul_precision()}"  # TF32 is a multiple as fast
    return f"{name}, {precision}, torch {torch.__version__}"


def _kept() -> dict[str, float]:
    try:
        return {str(key): float(rate) for key, rate in read_json(rates_file()).items() if float(rate) > 0}
    except (OSError, BertlineError, AttributeError, TypeError, ValueError):
        return {}  # absent or damaged: measured again


@contextmanager
def _turn() -> Iterator[None]:
    """Let one process of this machine measure at a time: two at once would each find half of the rate."""
    lock = rates_file().with_suffix(".lock")
    with ExitStack() as held:
        with suppress(OSError):  # the folder cannot be written
            lock.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(lock))
        yield
