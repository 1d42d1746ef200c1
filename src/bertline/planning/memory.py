"""Estimate of the memory that training takes on one device, from the configuration alone.

Checked against real steps on a CPU (peak resident memory during steps, minus that without model and optimizer; 5.5 M
and 1.6 M parameters, vocabulary of 8,192, 64 sequences of 128 tokens unless stated otherwise), in MB:

                                                     estimated  measured
    mini, bf16, compiled, fused attention                  454       436
    the same, 16 sequences of 512                          454       436
    mini, bf16, compiled, plain attention                  555       543
    the same, 256 sequences of 32                          473       479
    the same, dropout 0.1                                  590       615
    mini, fp32, compiled, plain attention                  789       797
    mini, bf16, not compiled, plain attention              714       824
    tiny, bf16, compiled, plain attention                  175       149
    tiny, bf16, not compiled, plain attention              334       331
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bertline.modeling.config import ModelConfig
from bertline.modeling.flops import num_encoder_parameters, num_parameters
from bertline.planning.hardware import Precision
from bertline.training.optimizers.base import OptimizerSettings

_FP32_BYTES = 4
_MASK_BYTES = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class StepShape:
    """Everything but the model that determines the memory of a step."""

    sequences: int
    """Number of rows in a micro-batch on one device."""
    length: int
    targets: int
    """Number of masked positions per row."""
    precision: Precision
    optimizer: OptimizerSettings
    compiled: bool
    fused_attention: bool
    """Whether the attention kernel is fused and stores no attention scores."""
    with_pooler: bool
    """Whether the model has a pooler and a head on it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryEstimate:
    """Bytes on one device at the peak of a step."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    """Activations of the layers and embeddings that the backward pass needs."""
    logits: int
    """Vocabulary logits at the masked positions, and their gradients."""

    @property
    def total(self) -> int:
        """Sum of all parts."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.logits


def memory_of(model: ModelConfig, shape: StepShape, *, vocab_size: int) -> MemoryEstimate:
    """Estimate the memory of one step.

    Weights, gradients and optimizer state are in fp32, and their size is exact; bf16 adds a copy of the weights.
    Activations are those that PyTorch keeps for each part of a layer, in bytes per position (I intermediate size, H
    hidden size, b bytes per element, S sequence length): input and output of the activation function, 2 b I; query,
    key, value and context, 4 b H; inputs of the matrix products and of both LayerNorms, which stay in fp32, 12 H in
    bf16 and 16 H in fp32; dropout masks, 1 byte per element; and without fused attention the attention probabilities, S
    elements per head. The last layer keeps its input, keys and values, 3 b H, for all positions, and the rest only for
    the positions that the heads read: the targets and, with a pooler, the first position.

    References:
        Korthikanti et al., arXiv 2205.05198, section 4.1, count the same way.
    """
    parameters = num_parameters(model, vocab_size=vocab_size, with_pooler=shape.with_pooler)
    copies = 2 if shape.precision == "bf16" else 0
    positions = shape.sequences * shape.length
    read = shape.sequences * min(shape.targets + shape.with_pooler, shape.length)
    width = _bytes_of(shape.precision)
    of_layer, of_all = _layer_bytes(model, shape), 3 * width * model.hidden_size
    embedding = (_FP32_BYTES + width + (_MASK_BYTES if model.hidden_dropout_prob else 0)) * model.hidden_size
    # A compiled step keeps the logit and its gradient; others also fp32 copies, the softmax and their gradients.
    logit = 2 * width if shape.compiled else 20
    layers = positions * ((model.num_hidden_layers - 1) * of_layer + of_all) + read * (of_layer - of_all)
    return MemoryEstimate(
        weights=parameters * (_FP32_BYTES + copies),
        gradients=parameters * _FP32_BYTES,
        optimizer=optimizer_bytes(model, shape.optimizer, num_weights=parameters),
        activations=layers + positions * embedding,
        logits=shape.sequences * shape.targets * vocab_size * logit,
    )


def optimizer_bytes(model: ModelConfig, optimizer: OptimizerSettings, *, num_weights: int) -> int:
    """Return the bytes of optimizer state."""
    vectors = 9 * model.hidden_size + model.intermediate_size  # biases and LayerNorms of a layer
    matrices = num_encoder_parameters(model) - model.num_hidden_layers * vectors
    moments, of_layers = optimizer.moments, optimizer.moments_of_layers
    values = moments * num_weights - (0 if of_layers is None else (moments - of_layers) * matrices)
    return _FP32_BYTES * values


def largest_fitting(model: ModelConfig, shape: StepShape, usable_bytes: int, *, vocab_size: int) -> int | None:
    """Return the largest power of two of sequences per micro-batch that fits; None if not even one does."""
    fixed = memory_of(model, replace(shape, sequences=0), vocab_size=vocab_size).total
    each = memory_of(model, replace(shape, sequences=1), vocab_size=vocab_size).total - fixed
    most = (usable_bytes - fixed) // each
    return 1 << (most.bit_length() - 1) if most >= 1 else None


def _layer_bytes(model: ModelConfig, shape: StepShape) -> int:
    """Return the bytes of activations of one layer per position."""
    hidden, width = model.hidden_size, _bytes_of(shape.precision)
    kept = 2 * width * model.intermediate_size + 4 * width * hidden + (12 if width == 2 else 16) * hidden
    if model.hidden_dropout_prob:
        kept += 2 * _MASK_BYTES * hidden
    if not shape.fused_attention:
        # Probabilities in fp32, and a copy in the dtype of the next matrix product.
        each = _FP32_BYTES + (width if width != _FP32_BYTES else 0)
        each += _MASK_BYTES if model.attention_probs_dropout_prob else 0
        kept += model.num_attention_heads * shape.length * each
    return kept


def _bytes_of(precision: Precision) -> int:
    return 2 if precision == "bf16" else _FP32_BYTES
