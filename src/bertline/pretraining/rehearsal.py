"""Rehearsal: a step at the shape of each phase before the first one, which finds the micro-batches that fit.

A phase of long sequences can need several times the memory of the one before it. Without a rehearsal, a run would fail
at the change of phase, after days of training.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pytorch_lightning as pl
import torch
from torch import Tensor

from bertline.foundation.errors import MachineError
from bertline.foundation.progress import say, warn
from bertline.modeling.bert import set_attention
from bertline.pretraining.data import StepBatch, StepDataset
from bertline.pretraining.module import PretrainingModule
from bertline.pretraining.plan import Place
from bertline.pretraining.row_layout import RowLayout
from bertline.pretraining.throughput import peak_memory_bytes
from bertline.training.devices import sum_over_ranks

# Beyond this fraction of the memory, what other steps need in addition might not fit: a few more packed rows, and gaps
# between blocks of memory.
_USABLE_FRACTION = 0.95
# Packed rows differ in number from step to step.
_STEPS_LOOKED_AT = 4
_GB = 1e9


@dataclass(eq=False)
class Rehearsal(pl.Callback):
    """Computes a step of each remaining phase before training starts, and changes nothing but the row layouts.

    Where the runtime section leaves the micro-batch open, it is the whole share of a step, or else the largest of a
    half, a quarter, ... of it that fits into the memory of every rank; without dropout the gradients are the same up to
    rounding, and with dropout a resumed run keeps what was found (see `row_layout.frozen_layout`) if it can. Other
    devices than GPUs are not rehearsed on: their memory ends with the process, not with an error.
    """

    dataset: StepDataset
    """Its `layouts` are changed before its first step is made."""

    def on_train_start(self, trainer: pl.Trainer, module: PretrainingModule) -> None:
        """Rehearse, if the device can.

        Raises:
            MachineError: A phase does not fit into the memory of the device.
        """
        if not reports_lack_of_memory(module.machine.device):
            return
        kind, plan = module.model.attention, self.dataset.plan
        largest: dict[int, tuple[Place, range]] = {}  # of each length, the phase with the largest batch, and its steps
        for place, start, end in plan.stretches(module.finished_steps, plan.num_steps):
            known = largest.get(place.max_length)
            if known is None or place.global_batch_size > known[0].global_batch_size:
                largest[place.max_length] = (place, range(start, end))
        for length, (place, steps) in largest.items():
            set_attention(module.model, self.dataset.layouts[length].attention.kind)
            layout = self._fitting_layout(module, place, steps)
            if module.frozen_layout is not None:
                module.frozen_layout["lengths"][str(length)]["rows"] = layout.rows
        set_attention(module.model, kind)

    def _fitting_layout(self, module: PretrainingModule, place: Place, steps: range) -> RowLayout:
        """Give the dataset the first layout of `_candidates` that fits, and return it."""
        device, ranks, length = module.machine.device, module.machine.ranks, place.max_length
        layout = self.dataset.layouts[length]
        step = max(steps[:_STEPS_LOOKED_AT], key=lambda step: _most_rows(self.dataset[step]["micro_batches"]))
        share = _most_rows(self.dataset[step]["micro_batches"])
        frozen = module.frozen_layout
        is_kept = frozen is not None and frozen["drawn_on"] is not None and module.finished_steps > 0
        for tried in _candidates(layout, share, module, is_open=layout.rows is None or is_kept):
            self.dataset.layouts = {**self.dataset.layouts, length: tried}
            micro_batches = self.dataset[step]["micro_batches"]
            rows = _most_rows(micro_batches)
            fits, peak = _rehearse(module, micro_batches, is_open=layout.rows is None)
            if sum_over_ranks([fits], device)[0] < ranks.world_size:
                continue
            if ranks.is_first and is_kept and tried != layout:
                warn(
                    f"this run began with micro-batches of {share} rows of {length} tokens, which do not fit in the "
                    f"memory of {device} now; from here on they have {rows}. Its dropout masks depend on that, so its "
                    "weights will not be those of a run that was never stopped. For these, free the memory and resume "
                    "from the checkpoint again."
                )
            if ranks.is_first:
                say(
                    f"rehearsed a step of {place.global_batch_size:,} sequences of {length} tokens: "
                    f"{len(micro_batches)} micro-batch(es) of {rows} rows on each device, {_of_capacity(peak, device)}"
                )
            return tried
        advice = (
            "Set runtime.micro_batch_size and runtime.micro_batch_tokens to null, and the largest micro-batch that "
            "fits is chosen; or reduce them."
            if layout.rows is not None and rows > 1
            else "Take a smaller model or a shorter max_length, pretrain.precision=bf16, another optimizer, or a "
            "device with more memory."
        )
        raise MachineError(
            f"pretrain.phases[{place.phase}]: a micro-batch of {rows} row(s) of {length} tokens does not fit in the "
            f"memory of {device} ({_of_capacity(peak, device)} when it failed). {advice}"
        )


def _candidates(layout: RowLayout, share: int, module: PretrainingModule, *, is_open: bool) -> Iterator[RowLayout]:
    """Yield the layout; if the number of rows is open, also smaller and smaller ones, equal on all ranks."""
    yield layout
    if is_open:
        ranks, device = module.machine.ranks, module.machine.device
        rows = -(-int(sum_over_ranks([share], device)[0]) // ranks.world_size)
        while rows > 1:
            rows = -(-rows // 2)
            yield replace(layout, rows=rows)


@dataclass(eq=False)
class AttentionByLength(pl.Callback):
    """Sets the attention kernel before a step whose sequence length differs from the previous one.

    Code between steps (validation, mask predictions, probes) runs with the kernel of the previous step: every kernel
    gives correct results at any width. A compiled graph is specific to one kernel and one width, and is reused when
    both recur.
    """

    layouts: Mapping[int, RowLayout]

    def on_train_batch_start(
        self, trainer: pl.Trainer, module: PretrainingModule, batch: StepBatch, batch_idx: int
    ) -> None:
        """Set the kernel for the width of this step's rows."""
        kind = self.layouts[batch["micro_batches"][0]["input_ids"].shape[1]].attention.kind
        if module.model.attention != kind:
            set_attention(module.model, kind)


def reports_lack_of_memory(device: torch.device) -> bool:
    """Return whether lack of memory on this device is an error that a process survives."""
    return device.type == "cuda"


def _rehearse(
    module: PretrainingModule, micro_batches: Sequence[Mapping[str, Tensor]], *, is_open: bool
) -> tuple[bool, int]:
    """Return whether a step fits into memory, and its peak in bytes.

    Args:
        micro_batches: Micro-batches of a step; the first two (the second adds to the gradients) and the last, which may
            be smaller, are computed.
        is_open: Whether a smaller micro-batch can be chosen, so that there is no need to use all memory.
    """
    device, on_gpu, fits = module.machine.device, module.machine.device.type == "cuda", True
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    try:
        module.rehearse([*micro_batches[:2], *micro_batches[2:][-1:]])
    except RuntimeError as error:
        if not _is_lack_of_memory(error):
            raise
        fits = False
    peak = peak_memory_bytes(device)
    if not fits:
        gc.collect()  # after the except block, whose error holds on to the activations
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        fits = fits and not (is_open and peak > _USABLE_FRACTION * _capacity_bytes(device))
    return fits, peak


def _is_lack_of_memory(error: BaseException) -> bool:
    """Return whether an error, or its cause (a compiler wraps it), says that memory ran out."""
    if isinstance(error, torch.OutOfMemoryError) or "CUBLAS_STATUS_ALLOC_FAILED" in str(error):
        return True
    return error.__cause__ is not None and _is_lack_of_memory(error.__cause__)


def _most_rows(micro_batches: Sequence[Mapping[str, Tensor]]) -> int:
    return max(len(micro_batch["input_ids"]) for micro_batch in micro_batches)


def _capacity_bytes(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).total_memory


def _of_capacity(peak: int, device: torch.device) -> str:
    capacity = f" of {_capacity_bytes(device) / _GB:.1f}" if device.type == "cuda" else ""
    return f"{peak / _GB:.1f}{capacity} GB of memory"
