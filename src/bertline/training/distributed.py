"""Sums over the processes that train together; with one process, the sums are the values themselves."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist


def sum_over_ranks(values: Sequence[float], device: torch.device) -> list[float]:
    """Sum each value over all ranks. Every rank must call it at the same point; it waits for the device.

    >>> sum_over_ranks([1.5, 2.0], torch.device("cpu"))
    [1.5, 2.0]
    """
    if not _several():
        return list(values)
    # NCCL only communicates tensors on its device; both device types that support several ranks have fp64.
    total = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return total.tolist()


def sum_on_device(value: float, device: torch.device) -> torch.Tensor | float:
    """Sum one value over all ranks without waiting for the device."""
    if not _several():
        return value
    # `full` runs on the device: copying a number to a GPU would wait for all the work before it.
    total = torch.full((), value, dtype=torch.float32, device=device)
    dist.all_reduce(total)
    return total


def leave_process_group() -> None:
    """Destroy the process group, if there is one, so that the process can exit cleanly."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def _several() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
