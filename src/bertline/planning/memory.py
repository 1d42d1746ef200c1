"""What a training holds in the memory of one device, from the configuration alone.

Held to real steps on a CPU (the most that is resident while stepping, over what is without model and optimizer; 5.5 M
and 1.6 M parameters, 8,192 pieces, 64 sequences of 128 unless said), in MB:

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

from dataclasses import dataclass
from typing import Literal

from bertline.modeling.config import ModelConfig
from bertline.modeling.flops import num_encoder_parameters, num_parameters
from bertline.planning.hardware import Precision

_FP32_BYTES = 4
_MASK_BYTES = 1
OptimizerKind = Literal["adamw", "lamb", "muon"]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepShape:
    """What decides the memory of a step, beside the model."""

    sequences: int
    """Rows that go through the model at once on one device."""
    length: int
    targets: int
    """Masked positions of a row."""
    precision: Precision
    optimizer: OptimizerKind
    compiled: bool
    fused_attention: bool
    """Attention scores are never stored."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryEstimate:
    """Bytes on one device at the fullest moment of a step."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    """What the backward pass needs of the layers and embeddings."""
    logits: int
    """Scores of the vocabulary at the masked positions, and their gradients."""

    @property
    def total(self) -> int:
        """All together."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.logits


def memory_of(model: ModelConfig, shape: StepShape, *, vocab_size: int) -> MemoryEstimate:
    """Estimate one step.

    Weights, gradients and the optimizer's state are fp32 and exact; bf16 adds a copy of the weights. Activations follow
    what PyTorch keeps of each part of a layer (I intermediate, H hidden, b bytes of a number): before and after the
    activation function, 2 b I; query, key, value and context, 4 b H; the inputs of the matrix products and of both
    norms, which stay fp32, 12 H in bf16 and 16 H in fp32; masks of dropout, 1 byte a number; and where attention is not
    fused the probabilities, S a head. The last layer keeps its input, keys and values, 3 b H, for all positions,
    and the rest only for the positions that are read: the targets and the first one.

    References:
        Korthikanti et al., arXiv 2205.05198, section 4.1, count the same way.
    """
    parameters = num_parameters(model, vocab_size=vocab_size)
    copies = 2 if shape.precision == "bf16" else 0
    positions = shape.sequences * shape.length
    read = shape.sequences * min(shape.targets + 1, shape.length)
    of_layer, of_all = _layer_bytes(model, shape), 3 * _bytes_of(shape.precision) * model.hidden_size
    layers = positions * ((model.num_hidden_layers - 1) * of_layer + of_all) + read * (of_layer - of_all)
    return MemoryEstimate(
        weights=parameters * (_FP32_BYTES + copies),
        gradients=parameters * _FP32_BYTES,
        optimizer=optimizer_bytes(model, shape.optimizer, vocab_size=vocab_size),
        activations=layers + positions * _embedding_bytes(model, shape),
        logits=shape.sequences * shape.targets * vocab_size * _logit_bytes(shape),
    )


def optimizer_bytes(model: ModelConfig, kind: OptimizerKind, *, vocab_size: int) -> int:
    """State of the optimizer: two averages of each weight, of Muon's matrices one."""
    both = 2 * _FP32_BYTES * num_parameters(model, vocab_size=vocab_size)
    match kind:
        case "adamw" | "lamb":
            return both
        case "muon":
            vectors = 9 * model.hidden_size + model.intermediate_size  # of a layer: biases and norms
            return both - _FP32_BYTES * (num_encoder_parameters(model) - model.num_hidden_layers * vectors)


def largest_fitting(model: ModelConfig, shape: StepShape, usable_bytes: int, *, vocab_size: int) -> int | None:
    """The largest power of two of sequences at once that fits; None: not even one does."""
    fixed = memory_of(model, _with_sequences(shape, 0), vocab_size=vocab_size).total
    each = memory_of(model, _with_sequences(shape, 1), vocab_size=vocab_size).total - fixed
    most = (usable_bytes - fixed) // each
    return 1 << (most.bit_length() - 1) if most >= 1 else None


def _with_sequences(shape: StepShape, sequences: int) -> StepShape:
    return StepShape(
        sequences=sequences,
        length=shape.length,
        targets=shape.targets,
        precision=shape.precision,
        optimizer=shape.optimizer,
        compiled=shape.compiled,
        fused_attention=shape.fused_attention,
    )


def _layer_bytes(model: ModelConfig, shape: StepShape) -> int:
    """Of a layer, for each position."""
    hidden, width = model.hidden_size, _bytes_of(shape.precision)
    kept = 2 * width * model.intermediate_size + 4 * width * hidden + (12 if width == 2 else 16) * hidden
    if model.hidden_dropout_prob:
        kept += 2 * _MASK_BYTES * hidden
    if not shape.fused_attention:
        # fp32, and a copy in the number format of the product that follows.
        each = _FP32_BYTES + (width if width != _FP32_BYTES else 0)
        each += _MASK_BYTES if model.attention_probs_dropout_prob else 0
        kept += model.num_attention_heads * shape.length * each
    return kept


def _embedding_bytes(model: ModelConfig, shape: StepShape) -> int:
    kept = (_FP32_BYTES + _bytes_of(shape.precision)) * model.hidden_size
    return kept + (_MASK_BYTES * model.hidden_size if model.hidden_dropout_prob else 0)


def _logit_bytes(shape: StepShape) -> int:
    """Of a score. Compiled, it and its gradient; else also fp32 copies, the softmax and their gradients."""
    return 2 * _bytes_of(shape.precision) if shape.compiled else 20


def _bytes_of(precision: Precision) -> int:
    return 2 if precision == "bf16" else _FP32_BYTES
