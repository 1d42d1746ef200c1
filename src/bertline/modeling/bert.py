"""BERT: the encoder, its pretraining heads, and a sequence classifier, in plain PyTorch.

Shapes: B sequences, S positions, P positions chosen for prediction, H hidden size, I intermediate size, V vocabulary
size, N heads, D = H / N channels per head.

References: Devlin et al., BERT (arXiv 1810.04805), section 3 and appendix A; google-research/bert `modeling.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertline.modeling.attention import AttentionKind, Scope, packed_scope, padded_scope
from bertline.modeling.config import ModelConfig
from bertline.modeling.dropout import Dropout, TokenMasks, number_sites
from bertline.modeling.families import FAMILIES
from bertline.modeling.layers import Embeddings, EncoderLayer, LayerDetail, activation


class EncoderOutput(NamedTuple):
    """Output of the encoder."""

    hidden_states: Tensor
    """[B, S, H] hidden states of the last layer; [B, P, H] or [P, H] if only some positions were requested."""
    pooled: Tensor | None
    """[B, H] pooler output for the first position, for classifying the whole sequence; None without a pooler."""
    before_last: Tensor
    """Hidden states that the last layer reads, [B, S, H], or [R, S, H] for packed rows: always at all positions."""


class EncodedInDetail(NamedTuple):
    """Intermediate results of the encoder, for inspection."""

    hidden_states: tuple[Tensor, ...]
    """[B, S, H] each: the embeddings, then the output of each layer."""
    layers: tuple[LayerDetail, ...]


class LanguageModelOutput(NamedTuple):
    """Logits of the pretraining heads and, with the head on pairs, the states below the last layer."""

    mlm_logits: Tensor
    """[B, P, V] at the masked positions ([P, V] for packed rows), or [B, S, V] at all positions."""
    nsp_logits: Tensor | None = None
    """[B, 2]; class 0 is the next segment, class 1 a random one."""
    before_last: Tensor | None = None
    """See `EncoderOutput`; no logits, but what an objective may read as well."""


class BertModel(nn.Module):
    """The encoder: embeddings, layers, and a pooler unless `with_pooler` is false."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        vocab_size: int,
        pad_token_id: int,
        attention: AttentionKind = "plain",
        with_pooler: bool = True,
    ) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.pad_token_id = pad_token_id
        self.embeddings = Embeddings(config, vocab_size=vocab_size, pad_token_id=pad_token_id)
        self.layers = nn.ModuleList(EncoderLayer(config, attention=attention) for _ in range(config.num_hidden_layers))
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size) if with_pooler else None
        self._pooler_activation = getattr(torch, FAMILIES[config.family].pooler_activation)
        number_sites(self)

    def keep_layers(self, chosen: Sequence[int]) -> None:
        """Keep these layers alone."""
        self.layers = nn.ModuleList(self.layers[place] for place in chosen)
        self.config = replace(self.config, num_hidden_layers=len(chosen))

    @property
    def below_layers(self) -> list[nn.Module]:
        """Modules that the first layer reads."""
        return [self.embeddings]

    @property
    def word_embeddings(self) -> Tensor:
        """[V, H]."""
        return self.embeddings.word_embeddings.weight

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        attention_mask: Tensor | None = None,
        masks: TokenMasks | None = None,
    ) -> EncoderOutput:
        """Encode sequences of at most `max_position_embeddings` positions.

        Args:
            input_ids: [B, S].
            token_type_ids: [B, S], 0 for segment A, 1 for segment B.
            attention_mask: [B, S], 1 for real positions, 0 for padding, which is not attended to. None means that
                there is no padding, and saves the masking.
            masks: Dropout masks of the positions; None: they are drawn from PyTorch's default generator.
        """
        scope = padded_scope(attention_mask, masks)
        before_last = self._before_last_layer(self.embeddings(input_ids, token_type_ids, masks=masks), scope)
        hidden_states = self.layers[-1](before_last, scope)
        return EncoderOutput(hidden_states, self._pooled(hidden_states[:, 0]), before_last)

    def forward_pooled(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        attention_mask: Tensor | None = None,
        dropout: nn.Module | None = None,
    ) -> Tensor:
        """Return `forward(...).pooled`, computing the last layer at the first position only.

        `dropout` is applied to what the pooler reads.
        """
        scope = padded_scope(attention_mask)
        hidden_states = self._before_last_layer(self.embeddings(input_ids, token_type_ids), scope)
        first = self.layers[-1](hidden_states, scope, first_only=True)
        pooled = self._pooled(first[:, 0] if dropout is None else dropout(first[:, 0]))
        assert pooled is not None  # classifiers have a pooler
        return pooled

    def forward_at(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        attention_mask: Tensor | None,
        positions: Tensor,
        masks: TokenMasks | None = None,
    ) -> EncoderOutput:
        """Encode sequences, computing the last layer only at some positions and, for the pooler, the first one.

        The arguments are those of `forward`, and the positions [B, P], indices into S. Hidden states are returned at
        these positions, [B, P, H], with the pooled vectors, [B, H].
        """
        scope = padded_scope(attention_mask, masks)
        hidden_states = self._before_last_layer(self.embeddings(input_ids, token_type_ids, masks=masks), scope)
        if self.pooler is None:
            return EncoderOutput(self.layers[-1].forward_at(hidden_states, scope, positions), None, hidden_states)
        with_first = torch.cat([positions, torch.zeros_like(positions[:, :1])], dim=1)
        read = self.layers[-1].forward_at(hidden_states, scope, with_first)
        return EncoderOutput(read[:, :-1], self._pooled(read[:, -1]), hidden_states)

    def forward_packed_at(
        self, rows: Mapping[str, Tensor], positions: Tensor, masks: TokenMasks | None = None
    ) -> EncoderOutput:
        """Encode packed rows like `forward_at`; each sequence gives the same result as on its own.

        Args:
            rows: A micro-batch of `examples.packing`: R rows of S positions that hold several sequences each.
            positions: [P] indices into the flattened rows, at which hidden states are returned, [P, H].
            masks: As in `forward`.
        """
        scope = packed_scope(rows["sequence_ids"], rows["boundaries"], self.layers[0].attention, masks)
        embedded = self.embeddings(rows["input_ids"], rows["token_type_ids"], rows["position_ids"], masks)
        hidden_states = self._before_last_layer(embedded, scope)
        if self.pooler is None:
            return EncoderOutput(
                self.layers[-1].forward_packed_at(hidden_states, scope, positions)[0], None, hidden_states
            )
        with_first = torch.cat([positions, rows["first_positions"]])
        read = self.layers[-1].forward_packed_at(hidden_states, scope, with_first)[0]
        at_positions, first = read.split([len(positions), len(rows["first_positions"])])
        return EncoderOutput(at_positions, self._pooled(first), hidden_states)

    def _pooled(self, first: Tensor) -> Tensor | None:
        return None if self.pooler is None else self._pooler_activation(self.pooler(first))

    def _before_last_layer(self, hidden_states: Tensor, scope: Scope) -> Tensor:
        for layer in self.layers[:-1]:
            hidden_states = layer(hidden_states, scope)
        return hidden_states

    def forward_in_detail(
        self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor | None = None
    ) -> EncodedInDetail:
        """Encode like `forward`, keeping hidden states and all of attention (`LayerDetail`) of every layer."""
        scope = padded_scope(attention_mask)
        hidden_states = [self.embeddings(input_ids, token_type_ids)]
        details = []
        for layer in self.layers:
            output, detail = layer.forward_in_detail(hidden_states[-1], scope)
            hidden_states.append(output)
            details.append(detail)
        return EncodedInDetail(tuple(hidden_states), tuple(details))


class MaskedLanguageModelHead(nn.Module):
    """Masked language model head: dense, activation, LayerNorm, then a decoder tied to the word embeddings.

    The decoder has its own bias.
    """

    def __init__(self, config: ModelConfig, *, vocab_size: int) -> None:
        super().__init__()
        self.transform = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = nn.GELU() if FAMILIES[config.family].mlm_head_is_gelu else activation(config)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, hidden_states: Tensor, word_embeddings: Tensor) -> Tensor:
        """Return logits [..., V] for hidden states [..., H] and word embeddings [V, H]."""
        transformed = self.norm(self.activation(self.transform(hidden_states)))
        # On a CPU, a matrix product with bias first copies the bias to each row (a tenth of the head's time). The
        # compiler fuses a separate addition into the loss, which reads the logits anyway.
        scores = F.linear(transformed, word_embeddings)
        return scores + self.bias.to(scores.dtype)


class MaskedLanguageModel(nn.Module):
    """An encoder with a masked language model head: what pretraining trains, and what fills blanks."""

    uses_pooler: ClassVar[bool]
    """Whether it has the pooler, and the next sentence head on it."""
    teacher: MaskedLanguageModel | None = None
    """Model that the objective `distilled` imitates; no submodule: it is neither trained nor saved."""

    def __init__(
        self, config: ModelConfig, *, vocab_size: int, pad_token_id: int, attention: AttentionKind = "plain"
    ) -> None:
        super().__init__()
        self.bert = BertModel(
            config, vocab_size=vocab_size, pad_token_id=pad_token_id, attention=attention, with_pooler=self.uses_pooler
        )
        self.mlm_head = MaskedLanguageModelHead(config, vocab_size=vocab_size)
        self.nsp_head = nn.Linear(config.hidden_size, 2) if self.uses_pooler else None

    @property
    def head(self) -> list[tuple[str, nn.Module]]:
        """The modules behind the encoder by name, that of the masked language model first."""
        return [(name, module) for name, module in self.named_children() if module is not self.bert]

    @property
    def attention(self) -> AttentionKind:
        """Attention kernel of the layers."""
        return self.bert.layers[0].attention

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        attention_mask: Tensor | None,
        masked_positions: Tensor,
        masks: TokenMasks | None = None,
    ) -> LanguageModelOutput:
        """Compute vocabulary logits at the masked positions only: 15 % of the work for all positions.

        The last layer is also computed only at these positions and the first one. The arguments are those of
        `BertModel.forward`, and the positions [B, P]; a sequence with fewer targets may have any indices in the rest.
        """
        return self._read(self.bert.forward_at(input_ids, token_type_ids, attention_mask, masked_positions, masks))

    def forward_everywhere(
        self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor | None = None
    ) -> LanguageModelOutput:
        """Compute vocabulary logits at every position, [B, S, V], as the class in transformers does."""
        return self._read(self.bert(input_ids, token_type_ids, attention_mask))

    def forward_packed(self, rows: Mapping[str, Tensor], masks: TokenMasks | None = None) -> LanguageModelOutput:
        """Compute the logits of `forward` for packed rows, at their masked positions; see `BertModel`."""
        return self._read(self.bert.forward_packed_at(rows, rows["masked_positions"], masks))

    def mlm_logits(self, states: Tensor) -> Tensor:
        """Return vocabulary logits [..., V] for hidden states [..., H]."""
        return self.mlm_head(states, self.bert.word_embeddings)

    def _read(self, encoded: EncoderOutput) -> LanguageModelOutput:
        mlm_logits = self.mlm_logits(encoded.hidden_states)
        if self.nsp_head is None:
            return LanguageModelOutput(mlm_logits)
        return LanguageModelOutput(mlm_logits, self.nsp_head(encoded.pooled), encoded.before_last)


class BertForPreTraining(MaskedLanguageModel):
    """The encoder with the masked language model head and the next sentence head (paper, section 3.1)."""

    uses_pooler: ClassVar[bool] = True


class BertForMaskedLM(MaskedLanguageModel):
    """The encoder with the masked language model head alone; it has no pooler, as in transformers."""

    uses_pooler: ClassVar[bool] = False


class BertWithClassifier(nn.Module):
    """The encoder, dropout and a linear classifier; subclasses define what is classified."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        vocab_size: int,
        pad_token_id: int,
        num_labels: int,
        classifier_dropout: float | None = None,
        attention: AttentionKind = "plain",
    ) -> None:
        super().__init__()
        self.bert = BertModel(config, vocab_size=vocab_size, pad_token_id=pad_token_id, attention=attention)
        self.dropout = Dropout(config.hidden_dropout_prob if classifier_dropout is None else classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, num_labels)
        self._drops_before_pooler = FAMILIES[config.family].drops_before_pooler
        number_sites(self)


class BertForSequenceClassification(BertWithClassifier):
    """A linear classifier on the pooled first position (paper, section 4.1)."""

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return logits [B, num_labels]; the arguments are those of `BertModel.forward`."""
        before = self.dropout if self._drops_before_pooler else None
        pooled = self.bert.forward_pooled(input_ids, token_type_ids, attention_mask, before)
        return self.classifier(self.dropout(pooled))


def set_attention(model: nn.Module, kind: AttentionKind) -> None:
    """Set the attention kernel of every layer of a model; outputs are equal up to rounding."""
    for module in model.modules():
        if isinstance(module, EncoderLayer):
            module.attention = kind
