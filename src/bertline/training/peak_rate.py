"""What utilisation is a fraction of: the rate of matrix products that this machine sustains, measured once.

Utilisation is comparable between runs only if all are held against the same peak. The first training of a machine
measures it, in four seconds that do not count as training, and keeps it in the user's cache folder; later trainings
read it there.
"""

from __future__ import annotations

import fcntl
import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from bertline.foundation.errors import BertlineError
from bertline.foundation.files import read_json, write_json
from bertline.foundation.processor import processor_name
from bertline.foundation.progress import say
from bertline.training.devices import Precision
from bertline.training.matmul_rate import hot_matmul_rate

_FILE_NAME = "matmul_rates.json"


def peak_rate(device: torch.device, precision: Precision) -> float:
    """Return floating-point operations per second of large matrix products, as `hot_matmul_rate` measures them.

    The result is kept for the model of the device, the precision, the number of threads and PyTorch's version. Delete
    the file to measure again, for example where other work ran meanwhile.

    Args:
        device: Device of the training.
        precision: Precision of the training.
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
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        handle = lock.open("w")
    except OSError:
        yield
        return
    with handle:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
