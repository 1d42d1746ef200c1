"""Hardware table of the planner: peak FLOP/s and memory, as published by the vendors."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from bertline.foundation.errors import ConfigError
from bertline.planning.config import THIS_MACHINE

Precision = Literal["fp32", "bf16"]

_TERA = 1e12
_GIGA = 10**9

# GPU memory not available for tensors: the driver's context, the libraries' workspaces, and fragmentation of the
# allocator.
_CONTEXT_BYTES = _GIGA
_USABLE_FRACTION = 0.95


@dataclass(frozen=True, kw_only=True, slots=True)
class Hardware:
    """Peak FLOP/s and memory of one device."""

    name: str
    """Name used in `plan.device`."""
    title: str
    bf16_flops: float | None
    """Peak FLOP/s of dense bf16 matrix products accumulated in fp32; None without bf16 in hardware."""
    fp32_flops: float
    """Peak FLOP/s in fp32 (not TF32, which bertline leaves off)."""
    memory_bytes: int
    pattern: str
    """Regular expression that matches the device name reported by PyTorch."""
    source: str
    num_threads: int | None = None
    """Number of threads on this machine's processor; None for a GPU."""

    @property
    def is_gpu(self) -> bool:
        """Whether the device is a GPU; the only other one is this machine's processor."""
        return self.name != THIS_MACHINE

    @property
    def usable_bytes(self) -> int:
        """Memory available for tensors, in bytes."""
        return int((self.memory_bytes - (_CONTEXT_BYTES if self.is_gpu else 0)) * _USABLE_FRACTION)

    def peak_flops(self, precision: Precision) -> float:
        """Return the peak FLOP/s in one precision.

        Raises:
            ConfigError: The precision is bf16, and the device has no bf16 in hardware.
        """
        if precision == "fp32":
            return self.fp32_flops
        if self.bf16_flops is None:
            raise ConfigError(
                f"pretrain.precision is bf16, but {self.title} has no bf16 in hardware and would emulate it, far "
                "slower than fp32. Use pretrain.precision=auto or fp32, or a newer device."
            )
        return self.bf16_flops

    def precision(self, asked: Literal["auto", "fp32", "bf16"]) -> Precision:
        """Return the precision of a training run on this device; `auto` is bf16 if the hardware supports it."""
        if asked != "auto":
            return asked
        return "fp32" if self.bf16_flops is None else "bf16"


def _gpu(
    name: str, title: str, bf16_tera: float | None, fp32_tera: float, gigabytes: int, pattern: str, source: str
) -> Hardware:
    return Hardware(
        name=name,
        title=title,
        bf16_flops=None if bf16_tera is None else bf16_tera * _TERA,
        fp32_flops=fp32_tera * _TERA,
        memory_bytes=gigabytes * _GIGA,
        pattern=pattern,
        source=source,
    )


_AMPERE_GA102 = "NVIDIA Ampere GA102 GPU architecture whitepaper"
_ADA = "NVIDIA Ada GPU architecture whitepaper"
_BLACKWELL = "NVIDIA RTX Blackwell GPU architecture whitepaper"

# Dense rates. Data sheets often print the rate with structured sparsity, which is twice as high.
GPUS = {
    one.name: one
    for one in (
        _gpu("t4", "NVIDIA T4", None, 8.1, 16, r"\bT4\b", "NVIDIA T4 data sheet"),
        _gpu("v100", "NVIDIA V100 16 GB", None, 15.7, 16, r"V100", "NVIDIA V100 data sheet (SXM2)"),
        _gpu("v100_32gb", "NVIDIA V100 32 GB", None, 15.7, 32, r"V100", "NVIDIA V100 data sheet (SXM2)"),
        _gpu("a10", "NVIDIA A10", 125, 31.2, 24, r"\bA10\b", "NVIDIA A10 data sheet"),
        _gpu("a10g", "NVIDIA A10G", 70, 31.5, 24, r"\bA10G\b", "NVIDIA A10G data sheet"),
        _gpu("a30", "NVIDIA A30", 165, 10.3, 24, r"\bA30\b", "NVIDIA A30 data sheet"),
        _gpu("a40", "NVIDIA A40", 149.7, 37.4, 48, r"\bA40\b", "NVIDIA A40 data sheet"),
        _gpu("a6000", "NVIDIA RTX A6000", 154.8, 38.7, 48, r"RTX A6000\b", _AMPERE_GA102),
        _gpu("a100", "NVIDIA A100 80 GB", 312, 19.5, 80, r"A100", "NVIDIA A100 data sheet"),
        _gpu("a100_40gb", "NVIDIA A100 40 GB", 312, 19.5, 40, r"A100", "NVIDIA A100 data sheet"),
        _gpu("l4", "NVIDIA L4", 121, 30.3, 24, r"\bL4\b", "NVIDIA L4 data sheet"),
        _gpu("l40s", "NVIDIA L40S", 362, 91.6, 48, r"\bL40S\b", "NVIDIA L40S data sheet"),
        _gpu("h100", "NVIDIA H100 SXM", 989, 66.9, 80, r"H100 80GB HBM3", "NVIDIA H100 data sheet (SXM)"),
        _gpu("h100_pcie", "NVIDIA H100 PCIe", 756, 51.2, 80, r"H100 PCIe", "NVIDIA H100 data sheet (PCIe)"),
        _gpu("h200", "NVIDIA H200", 989, 66.9, 141, r"\bH200\b", "NVIDIA H200 data sheet (SXM)"),
        _gpu("b200", "NVIDIA B200", 2250, 75, 180, r"\bB200\b", "NVIDIA DGX B200 data sheet, an eighth of it"),
        _gpu("rtx3090", "NVIDIA GeForce RTX 3090", 71, 35.6, 24, r"RTX 3090$", _AMPERE_GA102),
        _gpu("rtx4090", "NVIDIA GeForce RTX 4090", 165.2, 82.6, 24, r"RTX 4090$", _ADA),
        _gpu("rtx5090", "NVIDIA GeForce RTX 5090", 209.5, 104.8, 32, r"RTX 5090$", _BLACKWELL),
    )
}


def gpu_named(name: str) -> Hardware:
    """Return a GPU by name.

    Raises:
        ConfigError: The GPU is not in the table.
    """
    if name not in GPUS:
        raise ConfigError(
            f"plan.device is {name!r}, which is not in the table. Known: {THIS_MACHINE} (this machine's processor), "
            f"{', '.join(GPUS)}. For another one take the nearest below it."
        )
    return GPUS[name]


def this_machine(asked: Literal["auto", "fp32", "bf16"], *, num_threads: int | None) -> Hardware:
    """Return this machine's processor, with its matrix product rate measured for one second.

    Args:
        asked: Value of `pretrain.precision`; only the precision that a training run would use is measured.
        num_threads: Value of `runtime.num_threads`.
    """
    # Imported here because PyTorch takes seconds to import, and a plan for a GPU does not need it.
    import torch

    from bertline.training.devices import resolve_precision
    from bertline.training.matmul_rate import matmul_rate

    if num_threads is not None:
        torch.set_num_threads(num_threads)
    device = torch.device("cpu")
    precision = resolve_precision(asked, device)
    rate = matmul_rate(device, precision, for_s=1.0)
    return Hardware(
        name=THIS_MACHINE,
        title="this machine's processor",
        num_threads=torch.get_num_threads(),
        bf16_flops=rate if precision == "bf16" else None,
        fp32_flops=rate,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        pattern="",
        source=f"a matrix product, measured now{_load()}",
    )


def _load() -> str:
    """Return a note on the processor's load if it makes the measurement unreliable; otherwise an empty string."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    return f" while other work runs, load {load:.1f} on {cores} cores" if load > cores else ""
