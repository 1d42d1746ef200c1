"""Checks of the driver, the GPUs and cuDNN, on the device of each rank."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import torch

from bertline.doctor.finding import Finding, green, note, red, unused
from bertline.foundation.errors import MachineError
from bertline.training.config import RuntimeConfig
from bertline.training.devices import Ranks, driver_sees_gpu, resolve_device

_DRIVER = Path("/proc/driver/nvidia/version")
_SIZE = 1024
_FREE_FRACTION = 0.9
"""Share of a GPU's memory that must be free; less means that another process uses it."""


def device_of(runtime: RuntimeConfig, ranks: Ranks) -> torch.device:
    """Return the device of a rank, or the CPU if it has none that works; `device_findings` says why."""
    try:
        return resolve_device(runtime, ranks)
    except MachineError:
        return torch.device("cpu")


def driver_finding() -> Finding:
    """Report the version of the NVIDIA driver and the CUDA version that PyTorch was built for."""
    built = torch.version.cuda
    if not _DRIVER.exists():
        return unused("driver", "not used: there is no NVIDIA driver")
    numbers = re.search(r"\d+\.\d+(?:\.\d+)*", _DRIVER.read_text().partition("Kernel Module")[2])
    version = numbers[0] if numbers else "of an unknown version"
    if built is None:
        return note(
            "driver",
            f"{version}, but PyTorch {torch.__version__} is a build for the CPU",
            "To use the GPUs, install a build for CUDA (on an image that brings its own: make install TORCH=keep).",
        )
    return green("driver", f"{version}, PyTorch is built for CUDA {built}")


def device_findings(runtime: RuntimeConfig, ranks: Ranks, precision: str) -> Iterator[Finding]:
    """Check that the rank's device can be used: visible, supported by this PyTorch, with free memory, and computing.

    Args:
        runtime: The runtime section.
        ranks: Place of this process.
        precision: `pretrain.precision`.
    """
    try:
        device = resolve_device(runtime, ranks)
    except MachineError as error:
        found, _, fix = str(error).partition(". ")
        yield red("device", found, fix or "Use runtime.device=auto.")
        yield unused("cuDNN", "not used: no GPU")
        return
    if device.type != "cuda":
        yield _cpu_finding(device, runtime)
        yield unused("cuDNN", "not used: no GPU")
        return
    yield _gpu_finding(device, precision)
    yield _cudnn_finding()


def _cpu_finding(device: torch.device, runtime: RuntimeConfig) -> Finding:
    hidden = device.type == "cpu" and runtime.device == "auto" and driver_sees_gpu()
    if hidden:  # resolve_device has raised then, unless it learnt to fall back
        return note("device", "the CPU, although there is a GPU", "Set runtime.device=cuda to see what is missing.")
    if device.type == "cpu" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return green("device", "CPU without bf16 instructions: fp32 is used")
    return green("device", "CPU with bf16 instructions" if device.type == "cpu" else "Apple GPU")


def _gpu_finding(device: torch.device, precision: str) -> Finding:
    name = torch.cuda.get_device_name(device)
    major, minor = torch.cuda.get_device_capability(device)
    supported = torch.cuda.get_arch_list()
    shown = f"{name} (cuda:{device.index}, compute capability {major}.{minor})"
    if supported and not _runs_on(supported, major, minor):
        return red(
            "device",
            f"{shown} is not supported by PyTorch {torch.__version__} ({', '.join(supported)})",
            "Install a build of PyTorch for this GPU: a newer one for a newer GPU, an older CUDA for an older GPU.",
        )
    try:
        _compute(device, precision)
    except RuntimeError as error:
        return red(
            "device",
            f"{shown} cannot compute: {str(error).splitlines()[0]}",
            "Look at nvidia-smi for errors (Xid, ECC) and for other processes; else use another GPU or node.",
        )
    free, total = torch.cuda.mem_get_info(device)
    if free < _FREE_FRACTION * total:
        return note(
            "device",
            f"{shown}, but only {free / 1e9:.1f} of {total / 1e9:.1f} GB are free",
            "Another process uses this GPU: end it (nvidia-smi names it), or ask the scheduler for whole GPUs.",
            free_bytes=free,
        )
    return green("device", f"{shown}, {free / 1e9:.1f} GB free", free_bytes=free)


def _runs_on(supported: list[str], major: int, minor: int) -> bool:
    """Return whether code for one of these architectures runs on a GPU: of its generation, or compiled when loaded."""
    for arch in supported:
        kind, _, number = arch.partition("_")
        digits = re.sub(r"\D", "", number)
        built = (int(digits[:-1]), int(digits[-1]))
        if built <= (major, minor) and (built[0] == major or kind == "compute"):
            return True
    return False


def _compute(device: torch.device, precision: str) -> None:
    """Multiply two matrices on the device, and check one value.

    Raises:
        RuntimeError: The device fails, or its result is wrong.
    """
    dtype = torch.float32 if precision == "fp32" else torch.bfloat16
    ones = torch.ones(_SIZE, _SIZE, dtype=dtype, device=device)
    found = float((ones @ ones)[_SIZE // 2, _SIZE // 2])
    if found != _SIZE:
        raise RuntimeError(f"a product of ones is {found}, expected {_SIZE}")


def _cudnn_finding() -> Finding:
    if not torch.backends.cudnn.is_available():
        return red(
            "cuDNN",
            "PyTorch finds no cuDNN",
            "Install a complete CUDA build of PyTorch, or take an image that has cuDNN.",
        )
    number = torch.backends.cudnn.version() or 0
    return green("cuDNN", f"{number // 10000}.{number // 100 % 100}.{number % 100}")
