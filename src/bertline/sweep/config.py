"""Configuration of the sweep: which trials, how they are judged, what stands beside them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from bertline.finetuning.config import FineTuningConfig
from bertline.tasks.config import ChoiceSpace, LogUniformSpace


@dataclass(frozen=True, kw_only=True, slots=True)
class GridSamplerConfig:
    """Every combination of the choices, in an order shuffled by the seed; `num_trials` may cut it short."""

    kind: Literal["grid"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RandomSamplerConfig:
    """Independent draws."""

    kind: Literal["random"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TpeSamplerConfig:
    """Tree-structured Parzen estimator (Optuna's default)."""

    kind: Literal["tpe"]
    num_startup_trials: int


@dataclass(frozen=True, kw_only=True, slots=True)
class NoPrunerConfig:
    """Every trial runs to its end."""

    kind: Literal["none"]


@dataclass(frozen=True, kw_only=True, slots=True)
class MedianPrunerConfig:
    """A trial below the median of the earlier ones at the same epoch is stopped."""

    kind: Literal["median"]
    num_startup_trials: int
    num_warmup_epochs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepConfig:
    """A study for each task."""

    seed: int
    num_trials: int
    sampler: GridSamplerConfig | RandomSamplerConfig | TpeSamplerConfig
    pruner: NoPrunerConfig | MedianPrunerConfig
    fine_tuning: FineTuningConfig
    """The values that the space does not vary."""
    space: dict[str, ChoiceSpace | LogUniformSpace]
    """Fields of `fine_tuning` that trials vary."""
    num_seeds: int
    """Repetitions of the best configuration; the spread comes from these."""
    num_label_efficiency_seeds: int
    """Repetitions at each other training size (`tasks.NAME.label_efficiency_rows`)."""
    precision: Literal["auto", "fp32", "bf16"]
    """Number format of fine-tuning; auto: bf16 where the hardware computes it natively, else fp32."""
    random_weights_baseline: bool
    """The same encoder from random weights, with the same trials and seeds."""
    max_retries: int
    """How often a trial that died with its process is tried again."""

    def __post_init__(self) -> None:
        known = {field.name for field in fields(FineTuningConfig)}
        for name in self.space:
            if name not in known:
                raise ValueError(f"space.{name} is not a field of fine_tuning; known: {', '.join(sorted(known))}")
        for name in ("num_trials", "num_seeds", "num_label_efficiency_seeds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, found {getattr(self, name)}")
