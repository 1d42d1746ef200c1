"""Architecture of the encoder, with the names of BertConfig; the parameters and operations that follow from it."""

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from bertline.foundation.checked import Checked, FractionBelowOne, at_least, at_most, below

Pooling = Literal["mean", "cls"]
"""How hidden states become the vector of a text."""
LARGEST_SIZE = 10_000_000
"""A bound far above all that is trained: a damaged number would fill the memory before a weight is read."""
Size = Annotated[int, at_least(1), at_most(LARGEST_SIZE)]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig(Checked):
    """BERT's architecture (arXiv 1810.04805, section 3) without the vocabulary size, which the tokenizer determines."""

    hidden_size: Size
    """Size of the hidden states; a multiple of `num_attention_heads`."""
    num_hidden_layers: Annotated[int, at_least(1), at_most(1000)]
    """Number of layers."""
    num_attention_heads: Size
    """Number of attention heads of each layer."""
    intermediate_size: Size
    """Size of the hidden layer of the feed-forward network."""
    max_position_embeddings: Size
    """Number of position embeddings: the longest sequence that the model reads."""
    type_vocab_size: Annotated[int, at_least(0), at_most(LARGEST_SIZE)]
    """Number of token types; BERT uses one for each segment of a pair. With 1, both segments have the same; 0, in
    DistilBERT, is no table of them."""
    hidden_act: Literal["gelu", "gelu_new", "relu"]
    """Activation function; gelu is the exact form (erf), gelu_new the tanh approximation of the reference code."""
    hidden_dropout_prob: FractionBelowOne
    """Dropout probability of embeddings and of the outputs of attention and feed-forward network."""
    attention_probs_dropout_prob: FractionBelowOne
    """Dropout probability of attention probabilities."""
    initializer_range: Annotated[float, at_least(0), below(math.inf)]
    """Standard deviation of the truncated normal distribution of initial weights (reference code: 0.02)."""
    layer_norm_eps: Annotated[float, at_least(0), below(math.inf)]
    """Epsilon of LayerNorm."""
    family: str = "bert"
    """Family of the encoder (`modeling.families`), which decides names on disk and details of the heads."""
    own: dict[str, Any] = field(default_factory=dict, hash=False)
    """Settings of a wrapped family's config class in transformers, from which its model is made; empty for others."""

    def check(self) -> None:
        if self.family == "bert" and not self.type_vocab_size:
            raise ValueError("type_vocab_size must be at least 1 in family bert, found 0")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size must be a multiple of num_attention_heads, found {self.hidden_size} "
                f"and {self.num_attention_heads}"
            )


def num_parameters(config: ModelConfig, *, vocab_size: int, with_pooler: bool = True) -> int:
    """Return the number of parameters of `BertForPreTraining`, whose decoder is tied to the word embeddings.

    Without pooler, and so without the head that reads it, those of `BertForMaskedLM`.

    >>> base = ModelConfig(
    ...     hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072,
    ...     max_position_embeddings=512, type_vocab_size=2, hidden_act="gelu", hidden_dropout_prob=0.1,
    ...     attention_probs_dropout_prob=0.1, initializer_range=0.02, layer_norm_eps=1e-12)
    >>> num_parameters(base, vocab_size=30_522)
    110106428
    """
    hidden = config.hidden_size
    return (
        num_embedding_parameters(config, vocab_size=vocab_size)
        + num_encoder_parameters(config)
        + (hidden * hidden + 3 * hidden + vocab_size)  # MLM head: transform, its norm, bias of the decoder
        + (hidden * hidden + 3 * hidden + 2 if with_pooler else 0)  # pooler and the head on it, of two labels
    )


def num_embedding_parameters(config: ModelConfig, *, vocab_size: int) -> int:
    """Return the number of parameters of the word, position and segment embeddings and their LayerNorm."""
    return (vocab_size + config.max_position_embeddings + config.type_vocab_size + 2) * config.hidden_size


def num_encoder_parameters(config: ModelConfig) -> int:
    """Return the number of parameters of the encoder layers, without embeddings and heads."""
    hidden, intermediate = config.hidden_size, config.intermediate_size
    attention = 4 * (hidden * hidden + hidden)
    feed_forward = 2 * hidden * intermediate + intermediate + hidden
    norms = 4 * hidden
    return config.num_hidden_layers * (attention + feed_forward + norms)


def flops_per_token(
    config: ModelConfig, *, vocab_size: int, seq_len: float, target_fraction: float, with_pooler: bool = True
) -> float:
    """Return the floating-point operations of a training step (forward and backward) per real token.

    6 (N - (1 - r) M) + 12 (L - 1 + r) H S + 6 p (H² + H V): N parameters of the layers (embeddings are looked up, not
    multiplied), L layers, H hidden size, S positions that a token attends to, p fraction of positions that pass
    through the MLM head, V vocabulary size. The last layer is read only at the targets and the first position of a
    sequence, a fraction r = p + 1 / S of the positions: all of it except keys and values (M of its parameters) is
    computed at these positions only. Not counted: the pooler and the head on it (one position per sequence), padding
    and, in packed rows, the attention of the last layer at the other positions.

    Args:
        config: The architecture.
        vocab_size: V.
        seq_len: S; for sequences of several lengths, the mean over tokens.
        target_fraction: p.
        with_pooler: Whether a pooler reads the first position; else r = p.

    References:
        Kaplan et al., arXiv 2001.08361, section 2.1 (6 N); Chowdhery et al., arXiv 2204.02311, appendix B (attention).
    """
    hidden, parameters = config.hidden_size, num_encoder_parameters(config)
    read = min(1.0, target_fraction + (1 / seq_len if with_pooler else 0.0))
    keys_and_values = 2 * (hidden * hidden + hidden)
    saved = (1 - read) * (parameters // config.num_hidden_layers - keys_and_values)
    return (
        6 * (parameters - saved)
        + 12 * (config.num_hidden_layers - 1 + read) * hidden * seq_len
        + 6 * target_fraction * (hidden * hidden + hidden * vocab_size)
    )
