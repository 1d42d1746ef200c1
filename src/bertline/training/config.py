"""Configuration of the optimizer, the schedule and of how a run uses the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class _CommonOptimizerConfig:
    lr: float
    """Peak learning rate."""
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    """Of matrices, the embeddings among them; biases and LayerNorm do not decay (BERT reference code)."""
    max_grad_norm: float | None
    """Gradients are scaled down to this global L2 norm; None never."""

    def __post_init__(self) -> None:
        if not self.lr > 0:
            raise ValueError(f"lr must be positive, found {self.lr}")
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1):
            raise ValueError(f"beta1 and beta2 must be in [0, 1), found {self.beta1} and {self.beta2}")


@dataclass(frozen=True, kw_only=True, slots=True)
class AdamWConfig(_CommonOptimizerConfig):
    """AdamW (arXiv 1711.05101)."""

    kind: Literal["adamw"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LambConfig(_CommonOptimizerConfig):
    """LAMB (arXiv 1904.00962, algorithm 2), for batches of thousands of sequences.

    Neither decay nor adaptation to the weight's size on biases and LayerNorm.
    """

    kind: Literal["lamb"]


@dataclass(frozen=True, kw_only=True, slots=True)
class MuonConfig(_CommonOptimizerConfig):
    """Muon (Jordan et al. 2024; arXiv 2502.16982, section 2.2) for the matrices of the layers, AdamW for the rest.

    `lr` is the rate of the layers' matrices. Their updates are scaled to the size of AdamW's, so AdamW's rates fit, and
    know nothing of the size of a gradient.
    """

    kind: Literal["muon"]
    momentum: float
    adamw_lr: float
    """Peak rate of embeddings, heads and vectors."""

    def __post_init__(self) -> None:
        # Named, not super(): slots=True makes the class anew, and super() would look for the old one.
        _CommonOptimizerConfig.__post_init__(self)
        if not self.adamw_lr > 0:
            raise ValueError(f"adamw_lr must be positive, found {self.adamw_lr}")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be in [0, 1), found {self.momentum}")


OptimizerConfig = AdamWConfig | LambConfig | MuonConfig


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


@dataclass(frozen=True, kw_only=True, slots=True)
class WarmupStableDecayScheduleConfig(_CommonScheduleConfig):
    """Linear warm-up to the peak, which stays until `num_decay_steps` before the end (arXiv 2405.18392, section 3)."""

    kind: Literal["wsd"]
    num_decay_steps: int | None
    """The last steps of the run; None takes a fifth of it. Never a step of the warm-up, however short the run."""
    final_fraction: float
    """Of the peak, at the end."""
    decay: Literal["linear", "1-sqrt"]
    """The shape of the descent; 1-sqrt falls steeply at first."""

    def __post_init__(self) -> None:
        # Named, not super(): slots=True makes the class anew, and super() would look for the old one.
        _CommonScheduleConfig.__post_init__(self)
        if self.num_decay_steps is not None and self.num_decay_steps < 0:
            raise ValueError(f"num_decay_steps must not be negative, or null for a fifth, found {self.num_decay_steps}")
        if not 0 <= self.final_fraction <= 1:
            raise ValueError(f"final_fraction must be in [0, 1], found {self.final_fraction}")


ScheduleConfig = LinearScheduleConfig | CosineScheduleConfig | ConstantScheduleConfig | WarmupStableDecayScheduleConfig


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
    micro_batch_tokens: int | None
    """The same in tokens, padding included, whatever the length; at most one of the two is given."""
    packing: Literal["auto", "on", "off"]
    """Whether sequences of pretraining share rows; auto does where it is faster."""
    compile: Literal["auto", "on", "off"]
    attention: Literal["auto", "eager", "plain", "sdpa", "varlen"]
    """auto takes the fastest (`modeling.attention_choice`). varlen is for the packed rows of pretraining, which refuses
    it where it cannot be had; the rows of fine-tuning are not packed, and it means auto there, with a warning."""
    launcher: Literal["local"]
    sweep_workers: int
    """Processes of a sweep, each with a trial at a time; what uses more cores."""
    runs_folder: str
    """Work in progress: frozen configurations, logs, checkpoints, metrics."""
    progress_every_s: float
    """Seconds between progress lines where there is no terminal."""
    profile: bool
    """Write a trace of a few steps of pretraining and its ten costliest operations into the run folder."""

    def __post_init__(self) -> None:
        for name in ("num_devices", "num_nodes", "sweep_workers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, found {getattr(self, name)}")
        if self.num_threads is not None and self.num_threads < 1:
            raise ValueError(f"num_threads must be at least 1, or null, found {self.num_threads}")
        if self.micro_batch_size is not None and self.micro_batch_size < 1:
            raise ValueError(f"micro_batch_size must be at least 1, or null, found {self.micro_batch_size}")
        if self.micro_batch_size is not None and self.micro_batch_tokens is not None:
            raise ValueError(
                f"give micro_batch_size or micro_batch_tokens, not both, found {self.micro_batch_size} and "
                f"{self.micro_batch_tokens}"
            )
        if self.num_workers < 0:
            raise ValueError(f"num_workers must not be negative, found {self.num_workers}")
