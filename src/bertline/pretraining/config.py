"""Configuration of the pretrain stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class MlmNspObjectiveConfig:
    """Masked language model plus next sentence prediction (paper, section 3.1)."""

    kind: Literal["mlm_nsp"]
    nsp_weight: float
    """Weight of the NSP loss beside the MLM loss; the paper adds them (1.0)."""


ObjectiveConfig = MlmNspObjectiveConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseConfig:
    """A stretch of training with its own sequence length and batch."""

    steps: int
    """Optimizer steps."""
    max_length: int
    """One of `examples.lengths`."""
    global_batch_size: int
    """Sequences an optimizer step, over all devices."""

    def __post_init__(self) -> None:
        if self.steps < 1 or self.global_batch_size < 1:
            raise ValueError(f"steps and global_batch_size must be at least 1, found {self}")


@dataclass(frozen=True, kw_only=True, slots=True)
class FilmStripConfig:
    """The top guesses for fixed blanks, written down while the model learns."""

    every_steps: int
    sentences: tuple[str, ...]
    """Each has at least one `[MASK]`; the first is shown."""
    num_guesses: int

    def __post_init__(self) -> None:
        if self.every_steps < 1 or self.num_guesses < 1:
            raise ValueError(
                f"every_steps and num_guesses must be at least 1, found {self.every_steps} and {self.num_guesses}"
            )
        for sentence in self.sentences:
            if "[MASK]" not in sentence:
                raise ValueError(f"each sentence of the film strip needs a [MASK], found {sentence!r}")


@dataclass(frozen=True, kw_only=True, slots=True)
class HealthConfig:
    """When training raises an alarm and when it goes back to a checkpoint. Means are over the last `patience_steps`."""

    patience_steps: int
    """How long a loss at chance or a wait for data may last; for the losses it begins after the warm-up."""
    entropy_margin: float
    """Nats below the unigram entropy from which on the MLM loss counts as learning from the words around."""
    nsp_margin: float
    """Above chance, the NSP accuracy that counts as learning; less in proportion where chance is above 0.5."""
    spike_factor: float
    """Times the median of the rows before; the loss of a row above it is a spike."""
    rewind_on_spike: bool
    """Whether a spike is treated like too many skipped steps (PaLM, arXiv 2204.02311, section 5.1)."""
    min_grad_norm: float
    """Mean norm over a row below which gradients count as vanished."""
    max_grad_norm: float
    """Mean norm over a row, before clipping, above which gradients count as exploded."""
    max_data_wait_fraction: float
    """Of the time of training."""
    max_skipped_steps: int
    """Steps a row whose gradients may be infinite or NaN: they are skipped. With more of them training goes back to
    the last good checkpoint and passes over the examples of that row."""
    max_rewinds: int
    """How often a run goes back before it gives up."""

    def __post_init__(self) -> None:
        if self.patience_steps < 1:
            raise ValueError(f"patience_steps must be at least 1, found {self.patience_steps}")
        if not self.spike_factor > 1:
            raise ValueError(f"spike_factor must be above 1, found {self.spike_factor}")
        if not 0 <= self.min_grad_norm < self.max_grad_norm:
            raise ValueError(
                f"min_grad_norm must be below max_grad_norm, found {self.min_grad_norm} and {self.max_grad_norm}"
            )
        for name in ("max_skipped_steps", "max_rewinds"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, found {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class LinearProbeConfig:
    """What a linear classifier reads off the frozen encoder's vectors, measured while the model learns."""

    every_steps: int
    max_sentences: int
    """Most held-out sentences that are encoded; a classifier is fitted on two thirds and scored on the others."""

    def __post_init__(self) -> None:
        if self.every_steps < 1 or self.max_sentences < 1:
            raise ValueError(
                f"every_steps and max_sentences must be at least 1, found {self.every_steps} and {self.max_sentences}"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class PretrainConfig:
    """MLM/NSP pretraining; optimizer, schedule, model and objective are sections of their own."""

    seed: int
    phases: tuple[PhaseConfig, ...]
    """Empty where nothing is pretrained: the checkpoint of `start_from` is the encoder as it is."""
    max_steps: int | None
    """Stop here, whatever the phases say; the schedule ends here too. None runs all phases."""
    precision: Literal["auto", "fp32", "bf16"]
    """auto: bf16 where the hardware computes it natively, else fp32."""
    start_from: str | None
    """None: random weights. Else a folder or hub name of a BERT checkpoint whose vocabulary the line uses."""
    start_from_revision: str | None
    """Pins a hub name."""
    extends: str | None
    """The fingerprint of a finished run that this one goes on from, with more steps. None begins anew."""
    validate_every_steps: int
    validation_sequences: int
    """Most held-out sequences that are validated on; their masks are fixed."""
    checkpoint_every_steps: int
    keep_checkpoints: int
    """How many of the newest stay; that of the lowest held-out loss stays beside them."""
    film_strip: FilmStripConfig
    linear_probe: LinearProbeConfig | None
    """None: no linear probe."""
    health: HealthConfig

    def __post_init__(self) -> None:
        if not self.phases and self.start_from is None:
            raise ValueError(
                "phases is empty; give at least one {steps, max_length, global_batch_size}, or a checkpoint to take as "
                "it is (experiment=finetune pretrain.start_from=FOLDER_OR_NAME)"
            )
        for name in ("validate_every_steps", "validation_sequences", "checkpoint_every_steps", "keep_checkpoints"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, found {getattr(self, name)}")
        if self.max_steps is not None and self.max_steps < 1:
            raise ValueError(f"max_steps must be at least 1, or null for all phases, found {self.max_steps}")

    @property
    def num_steps(self) -> int:
        """Optimizer steps of the whole run."""
        total = sum(phase.steps for phase in self.phases)
        return total if self.max_steps is None else min(total, self.max_steps)
