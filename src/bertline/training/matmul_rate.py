"""Speed of a device at multiplying large matrices, of which utilisation is a fraction.

Each process measures it before its first training, in two seconds that do not count as training: a rate that was
measured while other work shared the device is that of one run only.
"""

import functools

import torch
from torch.utils.benchmark import Timer

from bertline.foundation.progress import say
from bertline.training.config import Precision
from bertline.training.private_api import cpu_computes_bf16

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
# A processor that was idle starts above the clock that it can hold.
_WARM_UP_S, _HOT_S = 0.5, 1.5


def hot_matmul_rate(device: torch.device, precision: Precision) -> float:
    """Measure floating-point operations per second of one large product, (m, k) by (k, n), of 2 m k n operations.

    The rate is the median of one and a half seconds, after half a second that warms the device up. On an accelerator
    m, k and n are 8192; on the CPU, with PyTorch's current number of threads, 4096, 768 and 3072. fp32 has PyTorch's
    current setting (TF32 if that is allowed). Training draws the same random numbers afterwards.
    """
    # On the CPU, BERT-base's feed-forward on 32 sequences of 128.
    rows, inner, columns = (4096, 768, 3072) if device.type == "cpu" else (8192, 8192, 8192)
    if device.type == "cpu" and precision == "bf16" and not cpu_computes_bf16():
        rows = 16  # emulated: the whole product would take minutes
    generator, dtype = torch.Generator(device).manual_seed(0), _DTYPES[precision]
    left = torch.randn(rows, inner, device=device, generator=generator).to(dtype)
    right = torch.randn(inner, columns, device=device, generator=generator).to(dtype)
    output = torch.empty(rows, columns, device=device, dtype=dtype)
    names = {"mm": torch.mm, "left": left, "right": right, "output": output}
    timer = Timer("mm(left, right, out=output)", globals=names, num_threads=torch.get_num_threads())
    timer.blocked_autorange(min_run_time=_WARM_UP_S)
    return 2.0 * rows * inner * columns / timer.blocked_autorange(min_run_time=_HOT_S).median


@functools.cache
def peak_rate(device: torch.device, precision: Precision) -> float:
    """Return floating-point operations per second of large matrix products, as `hot_matmul_rate` measures them once."""
    rate = hot_matmul_rate(device, precision)
    if device.type == "cuda":  # the matrices are freed by now
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    say(
        f"{device} sustains {rate / 1e9:,.0f} GFLOP/s in {precision} matrix products; utilisation is a fraction of that"
    )
    return rate
