"""The parts that BERT's encoder is made of: the embeddings, and a layer.

Shapes as in `bert.py`; Q positions of a row that the output of a layer is read at.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertline.modeling.attention import AttentionKind, Scope, attend
from bertline.modeling.config import ModelConfig
from bertline.modeling.dropout import Dropout

SITES_OF_LAYER = 3
"""Places of dropout: probabilities, attention output, output."""


class LayerDetail(NamedTuple):
    """The inside of one layer's attention: query, key [B, N, S, D]; scores, probabilities [B, N, S, S]."""

    query: Tensor
    key: Tensor
    scores: Tensor
    probabilities: Tensor


class Embeddings(nn.Module):
    """The sum of token, position and segment embeddings (paper, figure 2)."""

    def __init__(self, config: ModelConfig, *, vocab_size: int, pad_token_id: int) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab_size, config.hidden_size, padding_idx=pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, position_ids: Tensor | None = None) -> Tensor:
        if position_ids is None:
            positions = self.position_embeddings.weight[: input_ids.shape[1]]  # [S, H]
        else:
            positions = self.position_embeddings(position_ids)  # [B, S, H]
        embedded = self.word_embeddings(input_ids) + positions + self.token_type_embeddings(token_type_ids)
        return self.dropout(self.norm(embedded))  # [B, S, H]


class EncoderLayer(nn.Module):
    """Attention, then a feed-forward network; each is added to its input and then normalised ("post-norm")."""

    def __init__(self, config: ModelConfig, *, number: int, attention: AttentionKind) -> None:
        super().__init__()
        hidden_size = config.hidden_size
        self.attention: AttentionKind = attention
        self.num_heads = config.num_attention_heads
        self.attention_dropout_prob = config.attention_probs_dropout_prob
        # Query, key and value in one matrix product; they are three tensors on disk.
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)
        self.attention_output = nn.Linear(hidden_size, hidden_size)
        self.attention_norm = nn.LayerNorm(hidden_size, eps=config.layer_norm_eps)
        self.intermediate = nn.Linear(hidden_size, config.intermediate_size)
        self.activation = activation(config)
        self.output = nn.Linear(config.intermediate_size, hidden_size)
        self.output_norm = nn.LayerNorm(hidden_size, eps=config.layer_norm_eps)
        self.dropout_site = SITES_OF_LAYER * number + 1  # the embeddings have 0
        self.attention_output_dropout = Dropout(config.hidden_dropout_prob, site=self.dropout_site + 1)
        self.output_dropout = Dropout(config.hidden_dropout_prob, site=self.dropout_site + 2)

    def forward(self, hidden_states: Tensor, scope: Scope, *, first_only: bool = False) -> Tensor:
        """[B, S, H] to the same shape; with `first_only` to [B, 1, H], the first position, at a quarter of the work."""
        query, key, value = self._split_heads(hidden_states)
        if first_only:
            query, hidden_states = query[:, :, :1], hidden_states[:, :1]
        return self._after_attention(hidden_states, self._attend(query, key, value, scope))

    def forward_at(self, hidden_states: Tensor, scope: Scope, positions: Tensor) -> Tensor:
        """What `forward` gives at some positions of each row, without computing it at the others.

        Keys and values are of all positions, everything else of these alone.

        Args:
            hidden_states: [B, S, H].
            scope: The same for all positions of a row, as `padded_scope` makes it.
            positions: [B, Q] indices into S.

        Returns:
            [B, Q, H].
        """
        size, width, _ = hidden_states.shape
        asking = gather_positions(hidden_states, positions)  # [B, Q, H]
        query, key, value = self._split_heads_at(hidden_states, asking, positions)
        context = self._attend(query, key, value, scope, places=self._places_of_probabilities(positions, width))
        return self._after_attention(
            asking, context, places=positions.int() + width * _numbers(size, like=positions)[:, None]
        )

    def forward_packed_at(self, hidden_states: Tensor, scope: Scope, positions: Tensor) -> Tensor:
        """`forward_at` for packed rows: [R, S, H] at positions [Q] of the flattened rows to [1, Q, H].

        Rows have different numbers of such positions, so that all take part in the attention; what follows it is
        computed for these alone.
        """
        context = self._attend(*self._split_heads(hidden_states), scope)
        context = context.transpose(1, 2).flatten(0, 1)[positions]  # [Q, N, D]
        return self._after_attention(
            hidden_states.flatten(0, 1)[positions][None], context.transpose(0, 1)[None], places=positions.int()[None]
        )

    def forward_in_detail(self, hidden_states: Tensor, scope: Scope) -> tuple[Tensor, LayerDetail]:
        """The same by `eager` attention and without its dropout, with what `forward` does not keep."""
        query, key, value = self._split_heads(hidden_states)
        context, scores, probabilities = attend(query, key, value, scope, kind="eager")
        assert scores is not None and probabilities is not None  # eager gives both
        return self._after_attention(hidden_states, context), LayerDetail(query, key, scores, probabilities)

    def _split_heads(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[B, S, H] to query, key and value, each [B, N, S, D]."""
        projected = self.query_key_value(hidden_states)  # [B, S, 3 H]
        query, key, value = projected.unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return query, key, value

    def _split_heads_at(
        self, hidden_states: Tensor, asking: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Query [B, N, Q, D] of the positions that ask, key and value [B, N, S, D] of all."""
        if not isinstance(self.query_key_value, nn.Linear):
            # Replaced by an operation that has no weight to take parts of (`modeling.packed_linears`).
            query, key, value = self._split_heads(hidden_states)
            return query.take_along_dim(positions[:, None, :, None], dim=2), key, value
        hidden_size = hidden_states.shape[-1]
        weight, bias = self.query_key_value.weight, self.query_key_value.bias
        query = F.linear(asking, weight[:hidden_size], bias[:hidden_size])
        key_value = F.linear(hidden_states, weight[hidden_size:], bias[hidden_size:])  # [B, S, 2 H]
        key, value = key_value.unflatten(-1, (2, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return query.unflatten(-1, (self.num_heads, -1)).transpose(1, 2), key, value

    def _places_of_probabilities(self, positions: Tensor, width: int) -> Tensor | None:
        """[B, N, Q, S] of [B, N, S, S], as `modeling.dropout` numbers them; None where nothing is dropped."""
        if not (self.training and self.attention_dropout_prob):
            return None
        size = len(positions)
        of_heads = width * _numbers(size * self.num_heads, like=positions).view(size, -1, 1) + positions.int()[:, None]
        return width * of_heads[..., None] + _numbers(width, like=positions)

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, scope: Scope, *, places: Tensor | None = None
    ) -> Tensor:
        """The context; `places` of the probabilities as in `modeling.dropout`."""
        return attend(
            query,
            key,
            value,
            scope,
            kind=self.attention,
            dropout_prob=self.attention_dropout_prob if self.training else 0.0,
            dropout_site=self.dropout_site,
            dropout_places=places,
        ).context

    def _after_attention(self, hidden_states: Tensor, context: Tensor, *, places: Tensor | None = None) -> Tensor:
        """[B, S, H] and [B, N, S, D] to [B, S, H]; `places` [B, S] where these are some of more positions."""
        if places is not None:
            hidden_size = hidden_states.shape[-1]
            places = places[..., None] * hidden_size + _numbers(hidden_size, like=places)
        attended = self.attention_output(context.transpose(1, 2).flatten(2))
        hidden_states = self.attention_norm(hidden_states + self.attention_output_dropout(attended, places))
        transformed = self.output(self.activation(self.intermediate(hidden_states)))  # [B, S, I] between
        return self.output_norm(hidden_states + self.output_dropout(transformed, places))


def gather_positions(hidden_states: Tensor, positions: Tensor) -> Tensor:
    """Pick vectors [B, P, H] out of [B, S, H] by position [B, P].

    >>> gather_positions(torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([[2, 0]])).tolist()
    [[[3.0], [1.0]]]
    """
    return hidden_states.gather(1, positions[..., None].expand(-1, -1, hidden_states.shape[-1]))


def _numbers(count: int, *, like: Tensor) -> Tensor:
    """0, 1, 2, ... on the device of another tensor; int32, as places of dropout are."""
    return torch.arange(count, dtype=torch.int32, device=like.device)


def activation(config: ModelConfig) -> nn.Module:
    """The one that the configuration names."""
    match config.hidden_act:
        case "gelu":
            return nn.GELU()
        case "gelu_new":
            return nn.GELU(approximate="tanh")
        case "relu":
            return nn.ReLU()
