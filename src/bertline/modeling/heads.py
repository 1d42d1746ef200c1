"""Fine-tuning heads besides the classifier of `bert.py`: token classification, question answering, text embedding.

Shapes as in `bert.py`. None of these models uses the pooler, so their folders have no pooler weights, as in
Hugging Face's.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from bertline.modeling.attention import AttentionKind
from bertline.modeling.bert import BertModel, BertWithClassifier
from bertline.modeling.config import ModelConfig, Pooling
from bertline.modeling.dropout import Dropout, number_sites
from bertline.modeling.families import FAMILIES


class BertForTokenClassification(BertWithClassifier):
    """A linear classifier on every position (paper, section 5.3 and A.2)."""

    uses_pooler: ClassVar[bool] = False

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return logits [B, S, num_labels]; the arguments are those of `BertModel.forward`."""
        return self.classifier(self.dropout(self.bert(input_ids, token_type_ids, attention_mask).hidden_states))


class AnswerLogits(NamedTuple):
    """Logits of the start and end positions of the answer, before softmax over the positions."""

    start: Tensor
    """[B, S]."""
    end: Tensor
    """[B, S]."""


class BertForQuestionAnswering(nn.Module):
    """The encoder with a start and an end vector (paper, section 4.2); [CLS] means "no answer" (4.3)."""

    uses_pooler: ClassVar[bool] = False

    def __init__(
        self, config: ModelConfig, *, vocab_size: int, pad_token_id: int, attention: AttentionKind = "plain"
    ) -> None:
        super().__init__()
        self.bert = BertModel(config, vocab_size=vocab_size, pad_token_id=pad_token_id, attention=attention)
        drops = FAMILIES[config.family].drops_before_answers
        self.dropout = Dropout(config.hidden_dropout_prob) if drops else nn.Identity()
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        number_sites(self)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor | None = None) -> AnswerLogits:
        """Return start and end logits; the arguments are those of `BertModel.forward`."""
        hidden_states = self.bert(input_ids, token_type_ids, attention_mask).hidden_states
        start, end = self.qa_outputs(self.dropout(hidden_states)).unbind(-1)
        return AnswerLogits(start, end)


class BertTextEncoder(nn.Module):
    """The encoder with pooling: one vector per text, for similarity and search (arXiv 1908.10084)."""

    def __init__(self, bert: BertModel, *, pooling: Pooling) -> None:
        super().__init__()
        self.bert = bert
        self.pooling: Pooling = pooling

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return vectors [B, H], not normalised; the arguments are those of `BertModel.forward`."""
        return pooled(self.bert(input_ids, token_type_ids, attention_mask).hidden_states, attention_mask, self.pooling)


class BertVectorClassifier(BertTextEncoder):
    """A linear classifier on the pooled vector of a text, divided by its length.

    Of sentence encoders the pooled vector says more than the first position, which few labelled rows cannot change. Of
    a pair, whose texts have `separators` (ids) between them, it reads |u - v| and u * v of their vectors, each encoded
    alone (InferSent, arXiv 1705.02364, section 3.1, without u and v): they tell how two texts differ, whatever they are
    about. Without separators a pair is read as one text.
    """

    def __init__(
        self, bert: BertModel, *, pooling: Pooling, classifier: nn.Module, separators: Sequence[int] = ()
    ) -> None:
        super().__init__(bert, pooling=pooling)
        self.classifier, self.separators = classifier, separators

    def vectors(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return vectors [B, H] of length 1, or of pairs [B, 2 H]; the arguments are those of `BertModel.forward`."""
        if not self.separators:
            return self._of_texts(input_ids, token_type_ids, attention_mask)
        pairs = _texts_of_pairs(input_ids, attention_mask, self.separators)
        first, second = (self._of_texts(ids, torch.zeros_like(token_type_ids), mask) for ids, mask in pairs)
        return torch.cat([(first - second).abs(), first * second], dim=-1)

    def _of_texts(self, *inputs: Tensor) -> Tensor:
        return nn.functional.normalize(super().forward(*inputs).float(), dim=-1)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return logits [B, num_labels]; the arguments are those of `BertModel.forward`."""
        return self.classifier(self.vectors(input_ids, token_type_ids, attention_mask))


def _texts_of_pairs(ids: Tensor, mask: Tensor, separators: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield ids and mask of the first texts, and of the second ones, of pairs in one sequence each, all of them [B, S].

    A second text begins at position 1, behind [CLS], as if it were alone.
    """
    is_separator = (ids == separators[0]).long()
    of_first = mask * (is_separator.cumsum(dim=1) == is_separator)  # to the first separator
    yield ids, of_first
    places = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    sources = torch.where(places > 0, places + of_first.sum(dim=1, keepdim=True) + len(separators) - 2, 0)
    sources, is_inside = sources.clamp(max=ids.shape[1] - 1), sources < ids.shape[1]
    yield ids.gather(1, sources), mask.gather(1, sources) * is_inside


def pooled(hidden_states: Tensor, attention_mask: Tensor, pooling: Literal["mean", "cls", "max"]) -> Tensor:
    """Pool hidden states [B, S, H] with a mask [B, S] to [B, H].

    `mean` averages all real positions, including [CLS] and [SEP]; `max` takes the largest value of each channel there,
    `cls` the first position.

    >>> import torch
    >>> pooled(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[1, 1, 0]]), "mean").tolist()
    [[2.0]]
    """
    if pooling == "cls":
        return hidden_states[:, 0]
    if pooling == "max":
        return hidden_states.masked_fill(attention_mask[..., None] == 0, -torch.inf).amax(1)
    weights = attention_mask[..., None].to(hidden_states.dtype)
    return (hidden_states * weights).sum(1) / weights.sum(1)


def pooled_packed(hidden_states: Tensor, sequence_ids: Tensor, first_positions: Tensor, pooling: Pooling) -> Tensor:
    """Pool the sequences of packed rows like `pooled`.

    Args:
        hidden_states: [R * S, H] of the flattened rows.
        sequence_ids: [R, S]; sequence i has the id i + 1, padding has 0.
        first_positions: [B] start of each sequence in the flattened rows.

    Returns:
        [B, H]; entries without a sequence mean nothing.
    """
    if pooling == "cls":
        return hidden_states[first_positions]
    # A product, because adding by index has no fixed order on a GPU.
    numbers = torch.arange(1, len(first_positions) + 1, device=sequence_ids.device)
    members = (sequence_ids.flatten() == numbers[:, None]).to(hidden_states.dtype)
    return members @ hidden_states / members.sum(1, keepdim=True).clamp(min=1)
