"""BERT: the encoder, its two pretraining heads, and a sequence classifier, in plain PyTorch.

Shapes: B sequences, S positions, P positions chosen for prediction, H hidden size, I intermediate size, V pieces of
the vocabulary, N heads, D = H / N channels of a head.

References:
    Devlin et al., BERT (arXiv 1810.04805), section 3 and appendix A; google-research/bert `modeling.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertline.modeling.attention import AttentionKind, Scope, attend, packed_scope, padded_scope
from bertline.modeling.config import ModelConfig
from bertline.modeling.dropout import Dropout

_SITES_OF_LAYER = 3  # places of dropout: probabilities, attention output, output


class LayerDetail(NamedTuple):
    """The inside of one layer's attention: query, key [B, N, S, D]; scores, probabilities [B, N, S, S]."""

    query: Tensor
    key: Tensor
    scores: Tensor
    probabilities: Tensor


class Encoded(NamedTuple):
    """What the encoder gives."""

    hidden_states: Tensor
    """[B, S, H] of the last layer."""
    pooled: Tensor
    """[B, H] from the first position, for decisions about the whole sequence."""


class EncodedInDetail(NamedTuple):
    """All that happens on the way, for people to look at."""

    hidden_states: tuple[Tensor, ...]
    """[B, S, H]: the embeddings, then one for each layer."""
    layers: tuple[LayerDetail, ...]


class PackedRows(NamedTuple):
    """Several sequences in a row, one behind the other; R rows of S positions, C pieces of them all."""

    input_ids: Tensor
    """[R, S]."""
    token_type_ids: Tensor
    """[R, S]."""
    position_ids: Tensor
    """[R, S], counted from the start of each sequence."""
    sequence_ids: Tensor
    """[R, S], the same number at all positions of a sequence."""
    boundaries: Tensor
    """[C + 1] int32, where the sequences, and the padding at the end of rows, begin in the rows laid end to end."""


class PreTrainingOutput(NamedTuple):
    """The scores of the two pretraining heads, before softmax."""

    mlm_logits: Tensor
    """[B, P, V] at the masked positions; of packed rows [P, V]."""
    nsp_logits: Tensor
    """[B, 2]: 0 is next, 1 is a random segment."""


class Embeddings(nn.Module):
    """The sum of what a piece is, where it stands, and which segment it belongs to (paper, figure 2)."""

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
        self.activation = _activation(config)
        self.output = nn.Linear(config.intermediate_size, hidden_size)
        self.output_norm = nn.LayerNorm(hidden_size, eps=config.layer_norm_eps)
        self.dropout_site = _SITES_OF_LAYER * number + 1  # the embeddings have 0
        self.attention_output_dropout = Dropout(config.hidden_dropout_prob, site=self.dropout_site + 1)
        self.output_dropout = Dropout(config.hidden_dropout_prob, site=self.dropout_site + 2)

    def forward(self, hidden_states: Tensor, scope: Scope, *, first_only: bool = False) -> Tensor:
        """[B, S, H] to the same shape; with `first_only` to [B, 1, H], the first position, at a quarter of the work."""
        query, key, value = self._split_heads(hidden_states)
        if first_only:
            query, hidden_states = query[:, :, :1], hidden_states[:, :1]
        dropout_prob = self.attention_dropout_prob if self.training else 0.0
        context = attend(
            query, key, value, scope, kind=self.attention, dropout_prob=dropout_prob, dropout_site=self.dropout_site
        ).context
        return self._after_attention(hidden_states, context)

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

    def _after_attention(self, hidden_states: Tensor, context: Tensor) -> Tensor:
        """[B, S, H] and [B, N, S, D] to [B, S, H]."""
        attended = self.attention_output(context.transpose(1, 2).flatten(2))
        hidden_states = self.attention_norm(hidden_states + self.attention_output_dropout(attended))
        transformed = self.output(self.activation(self.intermediate(hidden_states)))  # [B, S, I] between
        return self.output_norm(hidden_states + self.output_dropout(transformed))


class BertModel(nn.Module):
    """The encoder: embeddings, layers, pooler."""

    def __init__(
        self, config: ModelConfig, *, vocab_size: int, pad_token_id: int, attention: AttentionKind = "plain"
    ) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.pad_token_id = pad_token_id
        self.embeddings = Embeddings(config, vocab_size=vocab_size, pad_token_id=pad_token_id)
        self.layers = nn.ModuleList(
            EncoderLayer(config, number=number, attention=attention) for number in range(config.num_hidden_layers)
        )
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor | None = None) -> Encoded:
        """Encode sequences of at most `max_position_embeddings` positions.

        Args:
            input_ids: [B, S].
            token_type_ids: [B, S], 0 for segment A, 1 for segment B.
            attention_mask: [B, S], 1 for real positions, 0 for padding, which no real position then sees. None says
                that no position is padding and saves the work.
        """
        scope = padded_scope(attention_mask)
        hidden_states = self.embeddings(input_ids, token_type_ids)
        for layer in self.layers:
            hidden_states = layer(hidden_states, scope)
        return Encoded(hidden_states, torch.tanh(self.pooler(hidden_states[:, 0])))

    def forward_pooled(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """`forward(...).pooled` without computing what the last layer says of any position but the first."""
        scope = padded_scope(attention_mask)
        hidden_states = self.embeddings(input_ids, token_type_ids)
        for layer in self.layers[:-1]:
            hidden_states = layer(hidden_states, scope)
        first = self.layers[-1](hidden_states, scope, first_only=True)
        return torch.tanh(self.pooler(first[:, 0]))

    def forward_packed(self, rows: PackedRows, first_positions: Tensor) -> Encoded:
        """Encode packed rows: each sequence as if it stood alone.

        Args:
            rows: The sequences.
            first_positions: [N], where each sequence begins in the rows laid end to end.

        Returns:
            The hidden states of the rows laid end to end, [R * S, H], and each sequence's pooled vector, [N, H].
        """
        scope = packed_scope(rows.sequence_ids, rows.boundaries, self.layers[0].attention)
        hidden_states = self.embeddings(rows.input_ids, rows.token_type_ids, rows.position_ids)
        for layer in self.layers:
            hidden_states = layer(hidden_states, scope)
        laid = hidden_states.flatten(0, 1)
        return Encoded(laid, torch.tanh(self.pooler(laid[first_positions])))

    def forward_in_detail(
        self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor | None = None
    ) -> EncodedInDetail:
        """Like `forward`, keeping the hidden states, queries, keys, scores and probabilities of every layer."""
        scope = padded_scope(attention_mask)
        hidden_states = [self.embeddings(input_ids, token_type_ids)]
        details = []
        for layer in self.layers:
            output, detail = layer.forward_in_detail(hidden_states[-1], scope)
            hidden_states.append(output)
            details.append(detail)
        return EncodedInDetail(tuple(hidden_states), tuple(details))


class MaskedLanguageModelHead(nn.Module):
    """Dense, activation, LayerNorm, then the word embeddings as output weights, with a bias of their own."""

    def __init__(self, config: ModelConfig, *, vocab_size: int) -> None:
        super().__init__()
        self.transform = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = _activation(config)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, hidden_states: Tensor, word_embeddings: Tensor) -> Tensor:
        """[..., H] and [V, H] to [..., V]."""
        transformed = self.norm(self.activation(self.transform(hidden_states)))
        return F.linear(transformed, word_embeddings, self.bias)


class BertForPreTraining(nn.Module):
    """The encoder with the masked language model head and the next sentence head (paper, section 3.1)."""

    def __init__(
        self, config: ModelConfig, *, vocab_size: int, pad_token_id: int, attention: AttentionKind = "plain"
    ) -> None:
        super().__init__()
        self.bert = BertModel(config, vocab_size=vocab_size, pad_token_id=pad_token_id, attention=attention)
        self.mlm_head = MaskedLanguageModelHead(config, vocab_size=vocab_size)
        self.nsp_head = nn.Linear(config.hidden_size, 2)

    @property
    def attention(self) -> AttentionKind:
        """How the layers compute attention."""
        return self.bert.layers[0].attention

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor | None, masked_positions: Tensor
    ) -> PreTrainingOutput:
        """Score the vocabulary at the masked positions alone: 15 % of the work of scoring it everywhere.

        Args:
            input_ids: [B, S].
            token_type_ids: [B, S].
            attention_mask: [B, S] or None, as in `BertModel.forward`.
            masked_positions: [B, P] indices into S; where a sequence has fewer targets, any index will do.
        """
        encoded = self.bert(input_ids, token_type_ids, attention_mask)
        at_targets = gather_positions(encoded.hidden_states, masked_positions)
        mlm_logits = self.mlm_head(at_targets, self.bert.embeddings.word_embeddings.weight)
        return PreTrainingOutput(mlm_logits, self.nsp_head(encoded.pooled))

    def forward_packed(self, rows: PackedRows, masked_positions: Tensor, first_positions: Tensor) -> PreTrainingOutput:
        """The same of packed rows.

        Args:
            rows: The sequences.
            masked_positions: [P] indices into the rows laid end to end.
            first_positions: [N], see `BertModel.forward_packed`.
        """
        encoded = self.bert.forward_packed(rows, first_positions)
        mlm_logits = self.mlm_head(encoded.hidden_states[masked_positions], self.bert.embeddings.word_embeddings.weight)
        return PreTrainingOutput(mlm_logits, self.nsp_head(encoded.pooled))


class BertWithClassifier(nn.Module):
    """The encoder, dropout and a linear classifier; what is classified is each subclass's own."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        vocab_size: int,
        pad_token_id: int,
        num_labels: int,
        classifier_dropout: float,
        attention: AttentionKind = "plain",
    ) -> None:
        super().__init__()
        self.bert = BertModel(config, vocab_size=vocab_size, pad_token_id=pad_token_id, attention=attention)
        self.dropout = Dropout(classifier_dropout, site=_SITES_OF_LAYER * config.num_hidden_layers + 1)
        self.classifier = nn.Linear(config.hidden_size, num_labels)


class BertForSequenceClassification(BertWithClassifier):
    """A linear classifier on the pooled first position (paper, section 4.1)."""

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Logits [B, num_labels]; the arguments are those of `BertModel.forward`."""
        return self.classifier(self.dropout(self.bert.forward_pooled(input_ids, token_type_ids, attention_mask)))


def gather_positions(hidden_states: Tensor, positions: Tensor) -> Tensor:
    """Pick vectors [B, P, H] out of [B, S, H] by position [B, P].

    >>> gather_positions(torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([[2, 0]])).tolist()
    [[[3.0], [1.0]]]
    """
    return hidden_states.gather(1, positions[..., None].expand(-1, -1, hidden_states.shape[-1]))


def set_attention(model: nn.Module, kind: AttentionKind) -> None:
    """Change how every layer of a model computes attention; the numbers stay the same to rounding."""
    for module in model.modules():
        if isinstance(module, EncoderLayer):
            module.attention = kind


def _activation(config: ModelConfig) -> nn.Module:
    match config.hidden_act:
        case "gelu":
            return nn.GELU()
        case "gelu_new":
            return nn.GELU(approximate="tanh")
        case "relu":
            return nn.ReLU()
