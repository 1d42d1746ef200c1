"""Speed of a device at multiplying large matrices, of which utilisation is a fraction.

Utilisation is comparable between runs only if all are measured against the same peak. The first training of a machine
measures it, in four seconds that do not count as training, and keeps it in the user's cache folder.
"""

import functools
import hashlib
import os
import statistics
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import torch

from bertline.foundation.files import kept_json, locked
from bertline.foundation.parallel import processor_name
from bertline.foundation.progress import say
from bertline.training.config import Precision

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
# A processor that was idle starts above the clock that it can hold, and one that shares its cores is slowed at times.
_WARM_UP_S = 1.0
_HOT_S = 3.0
_WINDOW_S = 0.5


def hot_matmul_rate(device: torch.device, precision: Precision) -> float:
    """Measure floating-point operations per second of one large product, (m, k) by (k, n), of 2 m k n operations.

    The rate is what a hot device sustains: that of the best half second of three, after a second that warms it up. On
    an accelerator m, k and n are 8192; on the CPU, with PyTorch's current number of threads, 4096, 768 and 3072. fp32
    has PyTorch's current setting (TF32 if that is allowed). Training draws the same random numbers afterwards.
    """
    on_cpu, dtype = device.type == "cpu", _DTYPES[precision]
    # On the CPU, BERT-base's feed-forward on 32 sequences of 128.
    rows, inner, columns = (4096, 768, 3072) if on_cpu else (8192, 8192, 8192)
    times = 1 if on_cpu else 10  # one takes 1 to 2 ms on a GPU: too short to time on its own
    wait = torch.cpu.synchronize if on_cpu else torch.accelerator.synchronize
    generator = torch.Generator(device).manual_seed(0)
    left = torch.randn(rows, inner, device=device, generator=generator).to(dtype)
    right = torch.randn(inner, columns, device=device, generator=generator).to(dtype)
    output = torch.empty(rows, columns, device=device, dtype=dtype)

    def seconds_of_a_product(num_rows: int = rows) -> float:
        wait(device)
        begun = time.perf_counter()
        for _ in range(times):
            torch.mm(left[:num_rows], right, out=output[:num_rows])
        wait(device)
        return (time.perf_counter() - begun) / times

    # If the CPU emulates bf16, the whole product would take minutes.
    sixteenth = rows // 16
    seconds = seconds_of_a_product(sixteenth)
    if on_cpu and seconds > 0.25:
        return 2.0 * sixteenth * inner * columns / seconds
    windows: dict[int, list[float]] = {}
    begun = time.perf_counter()
    while (passed := time.perf_counter() - begun) < _WARM_UP_S + _HOT_S or len(windows) < 2:
        windows.setdefault(int((passed - _WARM_UP_S) // _WINDOW_S), []).append(seconds_of_a_product())
    hot = [statistics.fmean(window) for number, window in windows.items() if number >= 0]
    return 2.0 * rows * inner * columns / min(hot)


def rates_folder() -> Path:
    """Return the folder with the rates of this user's machines: `bertline/matmul_rates` in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bertline/matmul_rates"


def peak_rate(device: torch.device, precision: Precision) -> float:
    """Return floating-point operations per second of large matrix products, as `hot_matmul_rate` measures them.

    The result is kept for the model of the device, the precision, the number of threads and PyTorch's version. Delete
    the folder to measure again, for example where other work ran meanwhile.
    """
    if device.type == "cpu":
        name = f"{processor_name()}, threads: {torch.get_num_threads()}"
    else:
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        if precision == "fp32":
            name += f", fp32 products: {torch.get_float32_matmul_precision()}"  # TF32 is a multiple as fast
    return _read_once(device, precision, f"{name}, {precision}, torch {torch.__version__}")


@functools.cache
def _read_once(device: torch.device, precision: Precision, key: str) -> float:
    file = rates_folder() / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
    with ExitStack() as turn:
        with suppress(OSError):  # where the folder cannot be written, the rate is not kept
            file.parent.mkdir(parents=True, exist_ok=True)
            turn.enter_context(locked(file.with_suffix(".lock")))  # two processes would each find half of the rate
        return kept_json(file, key, functools.partial(_measured, device, precision, key))


def _measured(device: torch.device, precision: Precision, key: str) -> float:
    rate = hot_matmul_rate(device, precision)
    if device.type == "cuda":  # the matrices are freed by now
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    say(
        f"this machine sustains {rate / 1e9:,.0f} GFLOP/s in matrix products ({key}); utilisation is a fraction of "
        "that. Measured once, in 4 s"
    )
    return rate
