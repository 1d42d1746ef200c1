"""Configuration of one fine-tuning run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class FineTuningConfig:
    """What a trial may vary (paper, section 4 and A.3). Numbers are floats or whole numbers as the field says."""

    learning_rate: float
    batch_size: int
    """Sequences an optimizer step."""
    num_epochs: int
    warmup_fraction: float
    """Share of the steps over which the rate rises; it falls linearly to zero after."""
    weight_decay: float
    dropout_prob: float
    """Of the classifier's input and of the encoder."""
    max_grad_norm: float

    def __post_init__(self) -> None:
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be positive, found {self.learning_rate}")
        if self.batch_size < 1 or self.num_epochs < 1:
            raise ValueError(
                f"batch_size and num_epochs must be at least 1, found {self.batch_size} and {self.num_epochs}"
            )
