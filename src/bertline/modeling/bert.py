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

from bertline.modeling.attention import AttentionKind, Scope, packed_scope, padded_scope
from bertline.modeling.config import ModelConfig
from bertline.modeling.dropout import Dropout
from bertline.modeling.layers import SITES_OF_LAYER, Embeddings, EncoderLayer, LayerDetail, activation


class Encoded(NamedTuple):
    """What the encoder gives."""

    hidden_states: Tensor
    """[B, S, H] of the last layer; [B, P, H] or [P, H] where only some positions were asked for."""
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
    """[B, P, V] at the masked positions, of packed rows [P, V]; [B, S, V] where all are scored."""
    nsp_logits: Tensor
    """[B, 2]: 0 is next, 1 is a random segment."""


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
        hidden_states = self._before_last_layer(self.embeddings(input_ids, token_type_ids), scope)
        first = self.layers[-1](hidden_states, scope, first_only=True)
        return torch.tanh(self.pooler(first[:, 0]))

    def forward_at(
        self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor | None, positions: Tensor
    ) -> Encoded:
        """`forward` for a reader of few positions: of the last layer no more is computed than these need.

        Args:
            input_ids: [B, S].
            token_type_ids: [B, S].
            attention_mask: [B, S] or None, as in `forward`.
            positions: [B, P] indices into S.

        Returns:
            The hidden states at these positions, [B, P, H], and the pooled vectors, [B, H].
        """
        scope = padded_scope(attention_mask)
        hidden_states = self._before_last_layer(self.embeddings(input_ids, token_type_ids), scope)
        with_first = torch.cat([positions, torch.zeros_like(positions[:, :1])], dim=1)
        read = self.layers[-1].forward_at(hidden_states, scope, with_first)
        return Encoded(read[:, :-1], torch.tanh(self.pooler(read[:, -1])))

    def forward_packed_at(self, rows: PackedRows, positions: Tensor, first_positions: Tensor) -> Encoded:
        """The same of packed rows: each sequence as if it stood alone.

        Args:
            rows: The sequences.
            positions: [P] indices into the flattened rows.
            first_positions: [N], where each sequence begins in them.

        Returns:
            The hidden states at these positions, [P, H], and each sequence's pooled vector, [N, H].
        """
        scope = packed_scope(rows.sequence_ids, rows.boundaries, self.layers[0].attention)
        embedded = self.embeddings(rows.input_ids, rows.token_type_ids, rows.position_ids)
        hidden_states = self._before_last_layer(embedded, scope)
        read = self.layers[-1].forward_packed_at(hidden_states, scope, torch.cat([positions, first_positions]))[0]
        at_positions, first = read.split([len(positions), len(first_positions)])
        return Encoded(at_positions, torch.tanh(self.pooler(first)))

    def _before_last_layer(self, hidden_states: Tensor, scope: Scope) -> Tensor:
        """What the last layer starts from."""
        for layer in self.layers[:-1]:
            hidden_states = layer(hidden_states, scope)
        return hidden_states

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
        self.activation = activation(config)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, hidden_states: Tensor, word_embeddings: Tensor) -> Tensor:
        """[..., H] and [V, H] to [..., V]."""
        transformed = self.norm(self.activation(self.transform(hidden_states)))
        # A CPU copies the bias to each row before a product that adds to it (a tenth of the head's time); the compiler
        # makes a sum of its own part of the loss, which reads the scores anyway.
        scores = F.linear(transformed, word_embeddings)
        return scores + self.bias.to(scores.dtype)


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

        The last layer, too, is computed only at these positions and the first one.

        Args:
            input_ids: [B, S].
            token_type_ids: [B, S].
            attention_mask: [B, S] or None, as in `BertModel.forward`.
            masked_positions: [B, P] indices into S; where a sequence has fewer targets, any index will do.
        """
        encoded = self.bert.forward_at(input_ids, token_type_ids, attention_mask, masked_positions)
        mlm_logits = self.mlm_head(encoded.hidden_states, self.bert.embeddings.word_embeddings.weight)
        return PreTrainingOutput(mlm_logits, self.nsp_head(encoded.pooled))

    def forward_everywhere(
        self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor | None = None
    ) -> PreTrainingOutput:
        """Score the vocabulary at every position, [B, S, V], as transformers' class does."""
        encoded = self.bert(input_ids, token_type_ids, attention_mask)
        mlm_logits = self.mlm_head(encoded.hidden_states, self.bert.embeddings.word_embeddings.weight)
        return PreTrainingOutput(mlm_logits, self.nsp_head(encoded.pooled))

    def forward_packed(self, rows: PackedRows, masked_positions: Tensor, first_positions: Tensor) -> PreTrainingOutput:
        """The same of packed rows.

        Args:
            rows: The sequences.
            masked_positions: [P] indices into the flattened rows.
            first_positions: [N], see `BertModel.forward_packed_at`.
        """
        encoded = self.bert.forward_packed_at(rows, masked_positions, first_positions)
        mlm_logits = self.mlm_head(encoded.hidden_states, self.bert.embeddings.word_embeddings.weight)
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
        self.dropout = Dropout(classifier_dropout, site=SITES_OF_LAYER * config.num_hidden_layers + 1)
        self.classifier = nn.Linear(config.hidden_size, num_labels)


class BertForSequenceClassification(BertWithClassifier):
    """A linear classifier on the pooled first position (paper, section 4.1)."""

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Logits [B, num_labels]; the arguments are those of `BertModel.forward`."""
        return self.classifier(self.dropout(self.bert.forward_pooled(input_ids, token_type_ids, attention_mask)))


def set_attention(model: nn.Module, kind: AttentionKind) -> None:
    """Change how every layer of a model computes attention; the numbers stay the same to rounding."""
    for module in model.modules():
        if isinstance(module, EncoderLayer):
            module.attention = kind
