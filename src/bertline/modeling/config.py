"""Architecture of the encoder, with the names of BertConfig."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """BERT's architecture (arXiv 1810.04805, section 3) without the vocabulary size, which the tokenizer determines."""

    hidden_size: int
    """Size of the hidden states; a multiple of `num_attention_heads`."""
    num_hidden_layers: int
    """Number of layers."""
    num_attention_heads: int
    """Number of attention heads of each layer."""
    intermediate_size: int
    """Size of the hidden layer of the feed-forward network."""
    max_position_embeddings: int
    """Number of position embeddings: the longest sequence that the model reads."""
    type_vocab_size: int
    """Number of token types; BERT uses one for each segment of a pair. With 1, both segments have the same; 0, in
    DistilBERT, is no table of them."""
    hidden_act: Literal["gelu", "gelu_new", "relu"]
    """Activation function; gelu is the exact form (erf), gelu_new the tanh approximation of the reference code."""
    hidden_dropout_prob: float
    """Dropout probability of embeddings and of the outputs of attention and feed-forward network."""
    attention_probs_dropout_prob: float
    """Dropout probability of attention probabilities."""
    initializer_range: float
    """Standard deviation of the truncated normal distribution of initial weights (reference code: 0.02)."""
    layer_norm_eps: float
    """Epsilon of LayerNorm."""
    family: str = "bert"
    """Family of the encoder (`modeling.families`), which decides names on disk and details of the heads."""
    own: dict[str, Any] = field(default_factory=dict, hash=False)
    """Settings of a wrapped family's config class in transformers, from which its model is made; empty for others."""

    def __post_init__(self) -> None:
        for one in fields(self):
            least = 0 if self.family != "bert" and one.name == "type_vocab_size" else 1
            if one.type == "int" and getattr(self, one.name) < least:
                raise ValueError(f"{one.name} must be at least {least}, found {getattr(self, one.name)}")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size must be a multiple of num_attention_heads, found {self.hidden_size} "
                f"and {self.num_attention_heads}"
            )
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be in [0, 1), found {getattr(self, name)}")
