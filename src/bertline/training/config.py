"""Configuration of the schedule and the use of the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bertline.training.launchers import LauncherConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class _CommonScheduleConfig:
    num_warmup_steps: int
    """Number of steps of linear warm-up."""

    def __post_init__(self) -> None:
        if self.num_warmup_steps < 0:
            raise ValueError(f"num_warmup_steps must not be negative, found {self.num_warmup_steps}")


@dataclass(frozen=True, kw_only=True, slots=True)
class LinearScheduleConfig(_CommonScheduleConfig):
    """Linear warm-up to the peak, then linear decay to zero at the last step (paper, A.2)."""

    kind: Literal["linear"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CosineScheduleConfig(_CommonScheduleConfig):
    """Linear warm-up to the peak, then half a cosine down to `final_fraction` of it."""

    kind: Literal["cosine"]
    final_fraction: float
    """Final learning rate as a fraction of the peak."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConstantScheduleConfig(_CommonScheduleConfig):
    """Linear warm-up to the peak, then constant."""

    kind: Literal["constant"]


@dataclass(frozen=True, kw_only=True, slots=True)
class WarmupStableDecayScheduleConfig(_CommonScheduleConfig):
    """Linear warm-up, constant until `num_decay_steps` before the end, then decay (arXiv 2405.18392, section 3)."""

    kind: Literal["wsd"]
    num_decay_steps: int | None
    """Number of decay steps at the end of the run; None: a fifth of the run. Never includes a step of the warm-up,
    however short the run."""
    final_fraction: float
    """Final learning rate as a fraction of the peak."""
    decay: Literal["linear", "1-sqrt"]
    """Shape of the decay; 1-sqrt falls steeply at first."""

    def __post_init__(self) -> None:
        # Named, not super(): slots=True creates a new class, and super() would refer to the old one.
        _CommonScheduleConfig.__post_init__(self)
        if self.num_decay_steps is not None and self.num_decay_steps < 0:
            raise ValueError(f"num_decay_steps must not be negative, or null for a fifth, found {self.num_decay_steps}")
        if not 0 <= self.final_fraction <= 1:
            raise ValueError(f"final_fraction must be in [0, 1], found {self.final_fraction}")


ScheduleConfig = LinearScheduleConfig | CosineScheduleConfig | ConstantScheduleConfig | WarmupStableDecayScheduleConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class RuntimeConfig:
    """How and where work is done. Affects speed or place, and results by rounding; no stage depends on it.

    Where dropout masks are drawn (on GPUs, and in fused attention), devices and row layout decide them too: see
    `pretraining.row_layout.frozen_layout`.
    """

    device: Literal["auto", "cpu", "cuda", "mps"]
    """Device to compute on; auto: a CUDA GPU if there is one, else the CPU."""
    num_devices: int
    """Number of devices of each machine. With more than one, `torchrun` starts a process for each; in a job of Slurm,
    `srun` does."""
    num_nodes: int
    """Number of machines. The same command runs on each; a job of Slurm starts it there."""
    num_workers: int
    """Number of processes that prepare text, examples and batches; 0: the main process does it."""
    engine: Literal["local", "ray"]
    """Where tokenizer and examples work on their shards: processes here, or a Ray cluster (`foundation.engine`)."""
    num_threads: int | None
    """Number of CPU threads of PyTorch in each process. None: one per core; in a sweep, one per worker, so that results
    do not depend on the number of workers."""
    micro_batch_size: int | None
    """Number of sequences per micro-batch on one device; None: the device's whole share of the global batch.
    On a GPU, pretraining finds before its first step whether that fits, and else takes the largest of a half, a
    quarter, ... of it that does."""
    micro_batch_tokens: int | None
    """Number of tokens per micro-batch on one device, padding included, for any length. At most one of this and
    `micro_batch_size` is given."""
    packing: Literal["auto", "on", "off"]
    """Whether sequences share rows in pretraining; auto: if it is faster."""
    compile: Literal["auto", "on", "off"]
    """Whether to use `torch.compile`; auto: if a compiler is there."""
    attention: Literal["auto", "eager", "plain", "sdpa", "varlen"]
    """Attention kernel; auto: the fastest (`modeling.attention_choice`). varlen is for the packed rows of pretraining,
    which fails if varlen is not available. Fine-tuning does not pack rows: varlen means auto there, with a warning."""
    launcher: LauncherConfig
    """How the long work of `pretrain` and `sweep` is started."""
    sweep_workers: int | None
    """Number of processes of a sweep, each with one trial at a time; more processes use more cores. None: one for each
    GPU that this process sees, or two on a CPU."""
    runs_folder: str
    """Folder of work in progress: frozen configurations, logs, checkpoints, metrics."""
    progress_every_s: float
    """Seconds between progress lines when there is no terminal."""
    checkpoint_every_s: float | None
    """Largest number of seconds of pretraining between two checkpoints, whatever `pretrain.checkpoint_every_steps` is:
    what a failure can lose. None: the cadence in steps alone counts."""
    validate_every_s: float | None
    """Smallest number of seconds between two validations in pretraining, and between two measurements of each probe;
    one that is due by its cadence in steps earlier is left out. None: the cadence in steps alone counts."""
    peer_timeout_s: float
    """Seconds after which a rank that is lost or hangs ends the training of all. It must be more than one rank may need
    alone while the others wait: to compile, validate or write a checkpoint to a slow disk."""
    profile: bool
    """Whether to write a trace of a few pretraining steps and their ten costliest operations to the run folder."""

    def __post_init__(self) -> None:
        for name in ("num_devices", "num_nodes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, found {getattr(self, name)}")
        if self.sweep_workers is not None and self.sweep_workers < 1:
            raise ValueError(f"sweep_workers must be at least 1, or null, found {self.sweep_workers}")
        if self.num_threads is not None and self.num_threads < 1:
            raise ValueError(f"num_threads must be at least 1, or null, found {self.num_threads}")
        if self.micro_batch_size is not None and self.micro_batch_size < 1:
            raise ValueError(f"micro_batch_size must be at least 1, or null, found {self.micro_batch_size}")
        if self.micro_batch_size is not None and self.micro_batch_tokens is not None:
            raise ValueError(
                f"give micro_batch_size or micro_batch_tokens, not both, found {self.micro_batch_size} and "
                f"{self.micro_batch_tokens}"
            )
        for name in ("checkpoint_every_s", "validate_every_s", "peer_timeout_s"):
            if (seconds := getattr(self, name)) is not None and seconds <= 0:
                raise ValueError(f"{name} must be positive, found {seconds}")
        if self.num_workers < 0:
            raise ValueError(f"num_workers must not be negative, found {self.num_workers}")
