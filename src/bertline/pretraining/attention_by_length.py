"""The fastest kind of attention in each phase: phases of other lengths may have other ones."""

from __future__ import annotations

from collections.abc import Mapping

import pytorch_lightning as pl

from bertline.modeling.attention_choice import AttentionChoice
from bertline.modeling.bert import set_attention
from bertline.pretraining.data import StepBatch
from bertline.pretraining.module import PretrainingModule


class AttentionByLength(pl.Callback):
    """Sets the kind of attention before a step of another length than the last.

    What runs between the steps (validation, film strip, probes) takes the kind of the step before: any is right at any
    width. A compiled graph is made for one kind and one width, and found again where both come back.

    Args:
        choices: By the length of the rows.
    """

    def __init__(self, choices: Mapping[int, AttentionChoice]) -> None:
        self._choices = choices

    def on_train_batch_start(
        self, trainer: pl.Trainer, module: PretrainingModule, batch: StepBatch, batch_idx: int
    ) -> None:
        """Look at the width of the rows."""
        kind = self._choices[batch["micro_batches"][0]["input_ids"].shape[1]].kind
        if module.model.attention != kind:
            set_attention(module.model, kind)
