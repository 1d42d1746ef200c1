"""The only place that builds a Lightning Trainer."""

import logging
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.environments import LightningEnvironment, TorchElasticEnvironment
from pytorch_lightning.profilers import PyTorchProfiler
from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy
from torch.profiler import schedule

from bertline.training.config import RuntimeConfig
from bertline.training.devices import Machine
from bertline.training.private_api import leave_sigterm_to_bertline, name_compiled_kernels


def build_trainer(
    machine: Machine,
    runtime: RuntimeConfig,
    *,
    callbacks: Sequence[pl.Callback],
    max_epochs: int,
    root: Path,
    profiled: bool = False,
) -> pl.Trainer:
    """Build a quiet Trainer that runs the loop, places tensors on devices and synchronises ranks.

    Everything else (order, metrics, checkpoints) is bertline's own. The callbacks run in their order after every batch.
    The profile of some steps is written to the folder `profile` of the root.
    """
    # Lightning's advice and hardware notes cover only what bertline has decided or reported itself.
    for name in ("pytorch_lightning", "lightning_fabric", "lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    is_alone = machine.ranks.world_size == 1
    trainer = pl.Trainer(
        accelerator="gpu" if machine.device.type == "cuda" else machine.device.type,
        devices=[machine.device.index] if is_alone and machine.device.type == "cuda" else runtime.num_devices,
        num_nodes=runtime.num_nodes,
        # DDP: every weight gets a gradient in every step, and there are no buffers to synchronise.
        strategy=SingleDeviceStrategy(device=machine.device)
        if is_alone
        else DDPStrategy(broadcast_buffers=False, gradient_as_bucket_view=True),
        # Named, not detected: Lightning would take over requeueing if it found Slurm's variables.
        plugins=[LightningEnvironment() if is_alone else TorchElasticEnvironment()],
        precision="bf16-mixed" if machine.precision == "bf16" else "32-true",
        max_epochs=max_epochs,
        callbacks=list(callbacks),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        default_root_dir=root,
        profiler=_profiler(root / "profile") if profiled else None,
    )
    leave_sigterm_to_bertline(trainer)
    return trainer


def _profiler(folder: Path) -> PyTorchProfiler:
    name_compiled_kernels()
    return PyTorchProfiler(
        dirpath=folder,
        filename="top_operations",
        row_limit=10,
        record_module_names=False,
        schedule=schedule(wait=10, warmup=1, active=5, repeat=1),  # the first steps compile and fill caches
    )


def run_trainer(trainer: pl.Trainer, module: pl.LightningModule, data: Iterable[Any] | pl.LightningDataModule) -> None:
    """Train, reproducibly on the CPU, without Lightning's warnings about choices that are made on purpose."""
    with warnings.catch_warnings(), _repeatable(trainer.strategy.root_device):
        warnings.filterwarnings("ignore", module=r"(pytorch_lightning|lightning_fabric|lightning)\..*")
        trainer.fit(module, data)


@contextmanager
def _repeatable(device: torch.device) -> Iterator[None]:
    """On the CPU, make equal steps bitwise reproducible until the block ends.

    By default, the compiled gradient of an embedding adds up in the order in which its threads arrive.
    """
    if device.type != "cpu":
        yield
        return
    before = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # a debugging aid that costs time
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.utils.deterministic.fill_uninitialized_memory = before[1]
