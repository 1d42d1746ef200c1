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
    film_strip: FilmStripConfig
    linear_probe: LinearProbeConfig | None
    """None: no linear probe."""

    def __post_init__(self) -> None:
        if not self.phases:
            raise ValueError("phases is empty; give at least one {steps, max_length, global_batch_size}")
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
