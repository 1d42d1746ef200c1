"""Switch the attention kernel between phases: the fastest one depends on the sequence length."""

from __future__ import annotations

from collections.abc import Mapping

import pytorch_lightning as pl

from bertline.modeling.attention_choice import AttentionChoice
from bertline.modeling.bert import set_attention
from bertline.pretraining.data import StepBatch
from bertline.pretraining.module import PretrainingModule


class AttentionByLength(pl.Callback):
    """Sets the attention kernel before a step whose sequence length differs from the previous one.

    Code between steps (validation, mask predictions, probes) runs with the kernel of the previous step: every kernel
    gives correct results at any width. A compiled graph is specific to one kernel and one width, and is reused when
    both recur.

    Args:
        choices: Attention kernel for each row length.
    """

    def __init__(self, choices: Mapping[int, AttentionChoice]) -> None:
        self._choices = choices

    def on_train_batch_start(
        self, trainer: pl.Trainer, module: PretrainingModule, batch: StepBatch, batch_idx: int
    ) -> None:
        """Set the kernel for the width of this step's rows."""
        kind = self._choices[batch["micro_batches"][0]["input_ids"].shape[1]].kind
        if module.model.attention != kind:
            set_attention(module.model, kind)
