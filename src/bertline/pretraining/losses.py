"""The objective as a module: the model and its losses in one, so that both are compiled together."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.losses import (
    masked_lm_correct,
    masked_lm_loss_sum,
    next_sentence_correct,
    next_sentence_loss_sum,
)


class PreTrainingSums(NamedTuple):
    """Sums over the targets (MLM) and sequences (NSP) of a micro-batch; losses in nats, fp32 scalars."""

    mlm_loss: Tensor
    nsp_loss: Tensor
    mlm_correct: Tensor
    nsp_correct: Tensor


class PreTrainingLosses(nn.Module):
    """Runs the model on a micro-batch and sums its losses.

    Sums, not means: whoever knows how many targets the whole global batch has divides by that (promise 3).
    """

    def __init__(self, model: BertForPreTraining) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        attention_mask: Tensor,
        masked_positions: Tensor,
        masked_labels: Tensor,
        next_sentence_labels: Tensor,
    ) -> PreTrainingSums:
        """The arguments are what `examples.batching` makes, as tensors."""
        output = self.model(input_ids, token_type_ids, attention_mask, masked_positions)
        mlm_loss, _ = masked_lm_loss_sum(output.mlm_logits, masked_labels)
        nsp_loss, _ = next_sentence_loss_sum(output.nsp_logits, next_sentence_labels)
        return PreTrainingSums(
            mlm_loss=mlm_loss,
            nsp_loss=nsp_loss,
            mlm_correct=masked_lm_correct(output.mlm_logits, masked_labels).float(),
            nsp_correct=next_sentence_correct(output.nsp_logits, next_sentence_labels).float(),
        )
