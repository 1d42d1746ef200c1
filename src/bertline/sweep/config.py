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
class SuccessiveHalvingPrunerConfig:
    """Of the trials that reach a rung, the best share goes on (arXiv 1810.05934, asynchronous).

    Rungs are shares of a trial's own schedule, so a trial of two epochs and one of four are compared at the same point
    of their learning-rate decay.
    """

    kind: Literal["successive_halving"]
    reduction_factor: int
    """One in so many goes on from a rung; each rung lies so many times further than the one before."""
    num_rungs: int
    """Before the end: with a factor of 2 and 3 rungs, at 1/8, 1/4 and 1/2 of the schedule."""

    def __post_init__(self) -> None:
        if self.reduction_factor < 2 or self.num_rungs < 1:
            raise ValueError("reduction_factor must be at least 2 and num_rungs at least 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepConfig:
    """A study for each task."""

    seed: int
    num_trials: int
    sampler: GridSamplerConfig | RandomSamplerConfig | TpeSamplerConfig
    pruner: NoPrunerConfig | MedianPrunerConfig | SuccessiveHalvingPrunerConfig
    fine_tuning: FineTuningConfig
    """The values that the space does not vary."""
    space: dict[str, ChoiceSpace | LogUniformSpace]
    """Fields of `fine_tuning` that trials vary."""
    num_best: int
    """So many of the best configurations are repeated over seeds; the one with the best mean on dev wins."""
    num_seeds: int
    """Repetitions of each of the best configurations; the spread comes from these."""
    num_label_efficiency_seeds: int
    """Repetitions at each other training size (`tasks.NAME.label_efficiency_rows`)."""
    precision: Literal["auto", "fp32", "bf16"]
    """Number format of fine-tuning; auto: bf16 where the hardware computes it natively, else fp32."""
    random_weights_baseline: Literal["always", "up_to_small", "never"]
    """The same encoder from random weights, with the same trials. `up_to_small`: only for encoders of at most
    4 layers of 512 (BERT-small) that were pretrained here; larger ones and public checkpoints cost as much again, and
    the answer is known."""
    random_weights_epochs: tuple[float, ...]
    """Numbers of epochs that trials from random weights take in turn, as multiples of the encoder's: at least three
    different ones, of which dev chooses."""
    random_weights_seeds: int | None
    """Repetitions of its best configurations, if `num_seeds` is not smaller; None: `num_seeds`. The test counts the
    noise of however many there are."""
    reference_encoder: str | None
    """Any BERT checkpoint (`model_type: bert`; a folder, or a hub name with its revision) under the same trials and
    seeds, to answer whether one's own encoder is better on one's own task. None: none."""
    max_retries: int
    """How often a trial that died with its process is tried again."""

    def __post_init__(self) -> None:
        known = {field.name for field in fields(FineTuningConfig)}
        for name in self.space:
            if name not in known:
                raise ValueError(f"space.{name} is not a field of fine_tuning; known: {', '.join(sorted(known))}")
        if len(set(self.random_weights_epochs)) < 3 or min(self.random_weights_epochs) <= 0:
            raise ValueError(
                f"random_weights_epochs must have at least three different multiples above 0, such as [0.5, 1, 2], "
                f"found {list(self.random_weights_epochs)}"
            )
        for name in ("num_trials", "num_best", "num_seeds", "num_label_efficiency_seeds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, found {getattr(self, name)}")
        if self.random_weights_seeds is not None and self.random_weights_seeds < 1:
            raise ValueError(f"random_weights_seeds must be at least 1, or null, found {self.random_weights_seeds}")
