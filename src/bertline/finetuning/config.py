"""Configuration of one fine-tuning run."""

from dataclasses import dataclass
from typing import Literal

from bertline.foundation.checked import (
    Checked,
    Fraction,
    FractionBelowOne,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class FineTuningConfig(Checked):
    """Hyperparameters of one fine-tuning run; a sweep may vary those that are numbers (paper, section 4 and A.3)."""

    learning_rate: PositiveFloat
    """Peak learning rate of the head and the top layer."""
    batch_size: PositiveInt
    """Rows per optimizer step (windows, where a row is split into several)."""
    num_epochs: NonNegativeInt
    """Number of training epochs. 0 scores the encoder untrained: an error if its head is randomly initialized."""
    warmup_fraction: float
    """Fraction of the steps used for learning rate warm-up; the rate then decays linearly to zero."""
    weight_decay: float
    """Weight decay of matrices, including embeddings; biases and LayerNorm do not decay."""
    dropout_prob: float
    """Dropout probability in the encoder and on the head's input."""
    max_grad_norm: float
    """Global L2 norm to which gradients are clipped."""
    trained_layers: NonNegativeInt | None
    """Number of top layers to train along with the head: None trains all weights, 0 only the head on a frozen encoder.
    The pooler counts as part of the head. Frozen modules run without dropout."""
    layer_decay: PositiveFraction
    """Learning rate of a layer as a fraction of that of the layer above; the embeddings count as the lowest layer. 1
    disables it (ELECTRA, arXiv 2003.10555, table 7: 0.8 to 0.9)."""
    reinitialized_layers: NonNegativeInt
    """Number of top layers to re-initialize, along with the pooler (arXiv 2006.05987, section 5); 0 for none."""
    label_smoothing: FractionBelowOne
    """Fraction of the target spread evenly over all labels. An error for a loss without labels (numbers, a CRF)."""
    focal_gamma: NonNegativeFloat
    """Exponent of the focal loss, by which rows that the model is sure of count less (arXiv 1708.02002, section 3.2; 2
    worked best there); 0 is cross-entropy. An error for a task other than classification."""
    class_weights: Literal["none", "balanced"]
    """`balanced` weights each label by rows / (labels * rows of that label), counted on train: the mean weight over the
    rows is 1, and a label absent from train gets 0. An error for a task without classes."""
    soft_weight: Fraction
    """Weight of the teacher's soft targets in the loss, 0 to 1; the rest is that of the labels. Without a teacher
    (`tasks.NAME.teacher`) nothing reads it."""
    soft_temperature: PositiveFloat
    """What the logits of teacher and student are divided by in the loss of soft targets (arXiv 1503.02531)."""
    early_stopping_epochs: PositiveInt | None
    """Number of epochs without a better dev score after which to stop, keeping the weights of the best epoch. None
    trains all epochs and keeps the weights of the last."""
    fewest_steps: int = 0
    """Number of optimizer steps below which epochs are added: on a few dozen rows the usual epochs end before training
    has begun (arXiv 2006.04884, section 6)."""
    method: Literal["full", "contrastive", "frozen"] = "full"
    """What is trained: `full` the encoder with a head on its first position; `frozen` a linear classifier on the
    encoder's vectors; `contrastive` the same after vectors of one label were moved together (of pairs, read as one
    text). The last two are for classification with one label a row."""
