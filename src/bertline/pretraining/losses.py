"""The objective as a module: the model and its losses in one, so that they are compiled together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor, nn

from bertline.modeling.bert import BertForPreTraining, PackedRows, PreTrainingOutput
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

    The losses are sums, not means: the caller divides by the number of targets in the global batch, so that every
    target has the same weight.
    """

    def __init__(self, model: BertForPreTraining) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Mapping[str, Tensor]) -> PreTrainingSums:
        """Run on the arrays of `examples.batching`, or on packed rows of `examples.packing`, as tensors.

        Without `attention_mask`, no row has padding.
        """
        output = self._packed(batch) if "boundaries" in batch else self._padded(batch)
        masked_labels, next_sentence_labels = batch["masked_labels"], batch["next_sentence_labels"]
        mlm_loss, _ = masked_lm_loss_sum(output.mlm_logits, masked_labels)
        return PreTrainingSums(
            mlm_loss=mlm_loss,
            nsp_loss=next_sentence_loss_sum(output.nsp_logits, next_sentence_labels),
            mlm_correct=masked_lm_correct(output.mlm_logits, masked_labels).float(),
            nsp_correct=next_sentence_correct(output.nsp_logits, next_sentence_labels).float(),
        )

    def _padded(self, batch: Mapping[str, Tensor]) -> PreTrainingOutput:
        attention_mask = batch.get("attention_mask")
        return self.model(batch["input_ids"], batch["token_type_ids"], attention_mask, batch["masked_positions"])

    def _packed(self, batch: Mapping[str, Tensor]) -> PreTrainingOutput:
        rows = PackedRows(**{name: batch[name] for name in PackedRows._fields})
        return self.model.forward_packed(rows, batch["masked_positions"], batch["first_positions"])
