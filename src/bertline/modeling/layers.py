"""Building blocks of BERT's encoder: embeddings and encoder layer.

Shapes as in `bert.py`; Q positions per row at which the output of a layer is read.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertline.modeling.attention import AttentionKind, Scope, attend
from bertline.modeling.config import ModelConfig
from bertline.modeling.dropout import Dropout, TokenMasks


class LayerDetail(NamedTuple):
    """Intermediate results of one layer's attention: query, key, value [B, N, S, D]; scores, probabilities
    [B, N, S, S]; a wrapped encoder gives the probabilities alone."""

    probabilities: Tensor
    query: Tensor | None = None
    key: Tensor | None = None
    value: Tensor | None = None
    scores: Tensor | None = None


class Embeddings(nn.Module):
    """The sum of token, position and segment embeddings (paper, figure 2)."""

    def __init__(self, config: ModelConfig, *, vocab_size: int, pad_token_id: int) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab_size, config.hidden_size, padding_idx=pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        types = config.type_vocab_size
        self.token_type_embeddings = nn.Embedding(types, config.hidden_size) if types else None
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)
        # Rows that the files of some families have before that of position 0; kept to be written again.
        self.register_buffer("unused_positions", None, persistent=False)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        position_ids: Tensor | None = None,
        masks: TokenMasks | None = None,
    ) -> Tensor:
        if position_ids is None:
            positions = self.position_embeddings.weight[: input_ids.shape[1]]  # [S, H]
        else:
            positions = self.position_embeddings(position_ids)  # [B, S, H]
        embedded = self.word_embeddings(input_ids) + positions
        if self.token_type_embeddings is not None:
            # A model with a single token type has it in both segments of a pair.
            is_single = self.token_type_embeddings.num_embeddings == 1
            types = torch.zeros_like(token_type_ids) if is_single else token_type_ids
            embedded = embedded + self.token_type_embeddings(types)
        return self.dropout(self.norm(embedded), masks)  # [B, S, H]


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network, each followed by residual addition and LayerNorm (post-norm)."""

    def __init__(self, config: ModelConfig, *, attention: AttentionKind) -> None:
        super().__init__()
        hidden_size = config.hidden_size
        self.attention: AttentionKind = attention
        self.num_heads = config.num_attention_heads
        # Query, key and value in one matrix product; on disk they are three tensors.
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)
        self.attention_output = nn.Linear(hidden_size, hidden_size)
        self.attention_norm = nn.LayerNorm(hidden_size, eps=config.layer_norm_eps)
        self.intermediate = nn.Linear(hidden_size, config.intermediate_size)
        self.activation = activation(config)
        self.output = nn.Linear(config.intermediate_size, hidden_size)
        self.output_norm = nn.LayerNorm(hidden_size, eps=config.layer_norm_eps)
        # `attend` drops the probabilities; this module only holds their rate and site.
        self.attention_dropout = Dropout(config.attention_probs_dropout_prob)
        self.attention_output_dropout = Dropout(config.hidden_dropout_prob)
        self.output_dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, hidden_states: Tensor, scope: Scope, *, first_only: bool = False) -> Tensor:
        """Map [B, S, H] to the same shape, or with `first_only` to [B, 1, H], the first position.

        `first_only` takes a quarter of the work.
        """
        query, key, value = self._split_heads(hidden_states)
        if first_only:
            assert scope.masks is None  # which are for all positions
            query, hidden_states = query[:, :, :1], hidden_states[:, :1]
        context = self._attend(query, key, value, scope, masks=scope.masks)
        return self._after_attention(hidden_states, context, masks=scope.masks)

    def forward_at(self, hidden_states: Tensor, scope: Scope, positions: Tensor) -> Tensor:
        """Compute the output of `forward` at some positions of each row only.

        Keys and values are computed at all positions, everything else at the given positions.

        Args:
            hidden_states: [B, S, H].
            scope: Scope that is the same for all positions of a row, as `padded_scope` returns.
            positions: [B, Q] indices into S.

        Returns:
            [B, Q, H].
        """
        asking = gather_positions(hidden_states, positions)  # [B, Q, H]
        query, key, value = self._split_heads_at(hidden_states, asking)
        masks = None if scope.masks is None else scope.masks.at(positions)
        context = self._attend(query, key, value, scope, masks=masks)
        return self._after_attention(asking, context, masks=masks)

    def forward_packed_at(self, hidden_states: Tensor, scope: Scope, positions: Tensor) -> Tensor:
        """Compute `forward_at` for packed rows: [R, S, H] at positions [Q] of the flattened rows to [1, Q, H].

        Rows have different numbers of these positions, so attention is computed at all positions; everything after it
        is computed at these positions only.
        """
        context = self._attend(*self._split_heads(hidden_states), scope, masks=scope.masks)
        context = context.transpose(1, 2).flatten(0, 1)[positions]  # [Q, N, D]
        asking = hidden_states.flatten(0, 1)[positions][None]
        masks = None if scope.masks is None else scope.masks.at(positions)
        return self._after_attention(asking, context.transpose(0, 1)[None], masks=masks)

    def forward_in_detail(self, hidden_states: Tensor, scope: Scope) -> tuple[Tensor, LayerDetail]:
        """Compute `forward` with `eager` attention, without attention dropout, and return intermediate results too."""
        query, key, value = self._split_heads(hidden_states)
        context, scores, probabilities = attend(query, key, value, scope, kind="eager")
        assert scores is not None and probabilities is not None  # eager returns both
        return self._after_attention(hidden_states, context), LayerDetail(probabilities, query, key, value, scores)

    def _split_heads(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Project [B, S, H] to query, key and value, each [B, N, S, D]."""
        projected = self.query_key_value(hidden_states)  # [B, S, 3 H]
        query, key, value = projected.unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return query, key, value

    def _split_heads_at(self, hidden_states: Tensor, asking: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return query [B, N, Q, D] of the states that ask, key and value [B, N, S, D] of all hidden states."""
        hidden_size = hidden_states.shape[-1]
        weight, bias = self.query_key_value.weight, self.query_key_value.bias
        query = F.linear(asking, weight[:hidden_size], bias[:hidden_size])
        key_value = F.linear(hidden_states, weight[hidden_size:], bias[hidden_size:])  # [B, S, 2 H]
        key, value = key_value.unflatten(-1, (2, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return query.unflatten(-1, (self.num_heads, -1)).transpose(1, 2), key, value

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, scope: Scope, *, masks: TokenMasks | None) -> Tensor:
        """Return the context; `masks` are those of the query."""
        dropout, places = self.attention_dropout, None
        if masks is not None and scope.masks is not None and dropout.prob:
            places = masks.of_probabilities(scope.masks, self.num_heads, dropout.site)
        return attend(
            query,
            key,
            value,
            scope,
            kind=self.attention,
            dropout_prob=dropout.prob,
            dropout_site=dropout.site,
            dropout_places=places,
        ).context

    def _after_attention(self, hidden_states: Tensor, context: Tensor, *, masks: TokenMasks | None = None) -> Tensor:
        """Compute the rest of the layer from its input [B, S, H] and the context [B, N, S, D]; return [B, S, H]."""
        attended = self.attention_output(context.transpose(1, 2).flatten(2))
        hidden_states = self.attention_norm(hidden_states + self.attention_output_dropout(attended, masks))
        transformed = self.output(self.activation(self.intermediate(hidden_states)))  # [B, S, I] between
        return self.output_norm(hidden_states + self.output_dropout(transformed, masks))


def gather_positions(hidden_states: Tensor, positions: Tensor) -> Tensor:
    """Gather vectors [B, P, H] from [B, S, H] at positions [B, P].

    >>> gather_positions(torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([[2, 0]])).tolist()
    [[[3.0], [1.0]]]
    """
    return hidden_states.gather(1, positions[..., None].expand(-1, -1, hidden_states.shape[-1]))


def activation(config: ModelConfig) -> nn.Module:
    """Return the activation function of the configuration."""
    if config.hidden_act == "relu":
        return nn.ReLU()
    return nn.GELU(approximate="tanh" if config.hidden_act == "gelu_new" else "none")
