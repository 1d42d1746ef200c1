"""Configuration of the pretrain stage."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from bertline.foundation.checked import (
    Checked,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    UserPath,
    UserPathOrHubName,
    above,
    at_least,
)
from bertline.pretraining.objectives.base import LearningMargins


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseConfig(Checked):
    """Training phase with its own sequence length and batch size."""

    steps: PositiveInt
    """Number of optimizer steps."""
    max_length: int
    """Sequence length in tokens; one of `examples.lengths`."""
    global_batch_size: PositiveInt
    """Sequences per optimizer step, over all devices."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskPredictionsConfig(Checked):
    """Top predictions for fixed blanks, recorded during training."""

    every_steps: PositiveInt
    """Steps between two predictions."""
    sentences: tuple[str, ...]
    """Sentences, each with at least one `[MASK]`, which stands for the tokenizer's own mask; the first of each is
    predicted."""
    num_guesses: PositiveInt
    """Number of tokens to record for each sentence."""

    def check(self) -> None:
        for sentence in self.sentences:
            if "[MASK]" not in sentence:
                raise ValueError(f"each sentence of the mask predictions needs a [MASK], found {sentence!r}")


@dataclass(frozen=True, kw_only=True, slots=True)
class HealthConfig(LearningMargins, Checked):
    """When training raises an alarm and when it ends as diverged.

    Metrics of the objective and the data-wait fraction are means over the last `patience_steps` steps.
    """

    patience_steps: PositiveInt
    """Number of steps for which a loss at chance level or waiting for data is tolerated; for the losses, counted after
    the warm-up."""
    spike_factor: Annotated[float, above(1)]
    """Multiple of the median loss of the previous rows above which the loss of a row is a spike."""
    min_grad_norm: NonNegativeFloat
    """Mean gradient norm of a row below which gradients count as vanished."""
    max_grad_norm: float
    """Mean gradient norm of a row, before clipping, above which gradients count as exploded."""
    max_data_wait_fraction: float
    """Largest acceptable fraction of training time spent waiting for data."""
    max_skipped_steps: NonNegativeInt
    """Largest acceptable number of steps per row that are skipped because their gradients are infinite or NaN; more
    are an error."""

    def check(self) -> None:
        if not self.min_grad_norm < self.max_grad_norm:
            raise ValueError(
                f"min_grad_norm must be below max_grad_norm, found {self.min_grad_norm} and {self.max_grad_norm}"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadProbeConfig(Checked):
    """How often the best attention head finds the syntactic head of a word, measured during training."""

    treebank: UserPath
    """CoNLL-U file with heads and relations."""
    every_steps: PositiveInt
    """Steps between two measurements."""
    max_sentences: Annotated[int, at_least(2)]
    """Largest number of sentences, evenly spread; heads are chosen on the first half and scored on the second."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PretrainConfig(Checked):
    """Pretraining; optimizer, schedule, model and objective have their own sections."""

    seed: int
    """Seed of initial weights, order, masks and dropout."""
    phases: tuple[PhaseConfig, ...]
    """Training phases in order. Empty: nothing is pretrained, and the checkpoint of `start_from` is the encoder."""
    max_steps: PositiveInt | None
    """Number of steps after which training and its schedule end, whatever the phases say. None runs all phases."""
    precision: Literal["auto", "fp32", "bf16"]
    """auto: bf16 if the hardware computes it natively, else fp32."""
    start_from: UserPathOrHubName | None
    """Folder or hub name of a BERT checkpoint to start from, whose vocabulary the pipeline uses. None: random
    weights."""
    start_from_revision: str | None
    """Hub revision of `start_from`."""
    initial_embeddings: Literal["cooccurrence"] | None
    """Word embeddings that random weights start with. cooccurrence: from the counts of neighbouring tokens in the
    examples (`pretraining.start`). None: random ones. With `start_from` they are the checkpoint's."""
    validate_every_steps: PositiveInt
    """Steps between two validations."""
    validation_sequences: PositiveInt
    """Largest number of held-out sequences to validate on; their masks are fixed."""
    checkpoint_every_steps: PositiveInt
    """Steps between two checkpoints."""
    keep_checkpoints: PositiveInt
    """Number of newest checkpoints to keep."""
    mask_predictions: MaskPredictionsConfig
    head_probe: HeadProbeConfig | None
    """None: no probe of attention heads."""
    health: HealthConfig

    def check(self) -> None:
        if not self.phases and self.start_from is None:
            raise ValueError(
                "phases is empty; give at least one {steps, max_length, global_batch_size}, or a checkpoint to take as "
                "it is (experiment=finetune pretrain.start_from=FOLDER_OR_NAME)"
            )

    @property
    def num_steps(self) -> int:
        """Number of optimizer steps of the whole run."""
        total = sum(phase.steps for phase in self.phases)
        return total if self.max_steps is None else min(total, self.max_steps)


def checkpoint_title(config: PretrainConfig) -> str:
    """Return the hub name with its revision; of a local checkpoint the folder's name, as its path is private."""
    start = str(config.start_from)
    if Path(start).expanduser().exists() or start.startswith((".", "/", "~", "data/")):
        return f"the local checkpoint {Path(start).expanduser().resolve().name}"
    return start if config.start_from_revision is None else f"{start}@{config.start_from_revision}"
