"""Configuration of one fine-tuning run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class FineTuningConfig:
    """What a trial may vary (paper, section 4 and A.3). Numbers are floats or whole numbers as the field says."""

    learning_rate: float
    """Of the head and the top layer."""
    batch_size: int
    """Rows an optimizer step (windows, where a row is read in several)."""
    num_epochs: int
    """0 trains nothing: the encoder is scored as it is, where the task's head has no weights of its own."""
    warmup_fraction: float
    """Share of the steps over which the rate rises; it falls linearly to zero after."""
    weight_decay: float
    dropout_prob: float
    """Of the head's input and of the encoder."""
    max_grad_norm: float
    trained_layers: int | None
    """None trains all weights; N the last N layers with the head; 0 the head alone, on a frozen encoder. The pooler is
    part of the head. What is frozen runs without dropout."""
    layer_decay: float
    """The rate of each layer is that of the layer above it times this; the embeddings count as the lowest layer. 1: off
    (ELECTRA, arXiv 2003.10555, table 7: 0.8 to 0.9)."""
    reinitialized_layers: int
    """How many of the top layers, with the pooler, start anew (arXiv 2006.05987, section 5)."""
    bias_correction: bool
    """AdamW's; BERT's own optimizer left it out, which makes small sets unstable (arXiv 2006.05987, section 4)."""
    label_smoothing: float
    """Share of the target that is spread evenly over all labels. An error where there are none (numbers, a CRF)."""
    class_weights: Literal["none", "balanced"]
    """`balanced` weighs each label by rows / (labels * rows of that label) of train: 1 in the mean over the rows, and 0
    for a label that train lacks. An error for a use without classes."""
    early_stopping_epochs: int | None
    """Stop after so many epochs without a better dev score; the best epoch's weights stay. None: the last's stay."""

    def __post_init__(self) -> None:
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be positive, found {self.learning_rate}")
        for name, least in (("batch_size", 1), ("num_epochs", 0), ("reinitialized_layers", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, found {getattr(self, name)}")
        if self.trained_layers is not None and self.trained_layers < 0:
            raise ValueError(f"trained_layers must be null or at least 0, found {self.trained_layers}")
        if not 0 < self.layer_decay <= 1:
            raise ValueError(f"layer_decay must be above 0 and at most 1, found {self.layer_decay}")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must be at least 0 and below 1, found {self.label_smoothing}")
        if self.early_stopping_epochs is not None and self.early_stopping_epochs < 1:
            raise ValueError(f"early_stopping_epochs must be null or at least 1, found {self.early_stopping_epochs}")
