"""Configuration of the optimizer, the schedule and of how a run uses the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class AdamWConfig:
    """AdamW (arXiv 1711.05101), no decay on biases and LayerNorm (BERT reference code)."""

    kind: Literal["adamw"]
    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    max_grad_norm: float | None
    """Gradients are scaled down to this global L2 norm; None never."""

    def __post_init__(self) -> None:
        if not self.lr > 0:
            raise ValueError(f"lr must be positive, found {self.lr}")
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1):
            raise ValueError(f"beta1 and beta2 must be in [0, 1), found {self.beta1} and {self.beta2}")


OptimizerConfig = AdamWConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class _CommonScheduleConfig:
    num_warmup_steps: int

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


@dataclass(frozen=True, kw_only=True, slots=True)
class ConstantScheduleConfig(_CommonScheduleConfig):
    """Linear warm-up to the peak, which then stays."""

    kind: Literal["constant"]


ScheduleConfig = LinearScheduleConfig | CosineScheduleConfig | ConstantScheduleConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class RuntimeConfig:
    """How and where work is done. Changes speed or place, never results beyond rounding; no stage depends on it."""

    device: Literal["auto", "cpu", "cuda", "mps"]
    num_devices: int
    num_nodes: int
    num_workers: int
    """Processes that prepare text, examples and batches; 0 does it in the main process."""
    num_threads: int | None
    """CPU threads of PyTorch in each process. None: one a core; in a sweep one for each worker, however many there are,
    so that results do not depend on that."""
    micro_batch_size: int | None
    """Sequences that go through the model at once on one device; None takes the whole share of the global batch."""
    compile: Literal["auto", "on", "off"]
    attention: Literal["auto", "eager", "plain", "sdpa"]
    launcher: Literal["local"]
    sweep_workers: int
    """Processes of a sweep, each with a trial at a time; what uses more cores."""
    runs_folder: str
    """Work in progress: frozen configurations, logs, checkpoints, metrics."""
    progress_every_s: float
    """Seconds between progress lines where there is no terminal."""

    def __post_init__(self) -> None:
        for name in ("num_devices", "num_nodes", "sweep_workers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, found {getattr(self, name)}")
        if self.num_threads is not None and self.num_threads < 1:
            raise ValueError(f"num_threads must be at least 1, or null, found {self.num_threads}")
        if self.micro_batch_size is not None and self.micro_batch_size < 1:
            raise ValueError(f"micro_batch_size must be at least 1, or null, found {self.micro_batch_size}")
        if self.num_workers < 0:
            raise ValueError(f"num_workers must not be negative, found {self.num_workers}")
