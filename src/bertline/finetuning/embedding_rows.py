"""Trains the rows of large word embeddings that batches read; all other rows only decay, which is computed when needed.

The gradient of a row that no batch reads is zero in every step. AdamW then multiplies the row by 1 - learning rate *
weight decay, and the row adds nothing to the norm that gradients are clipped by.
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from bertline.encoding.sequences import Epochs
from bertline.finetuning.config import FineTuningConfig
from bertline.finetuning.parameter_groups import parameter_groups

# A smaller table costs a few milliseconds a step; the small encoders of the default runs keep their weights bitwise.
_LEAST_WEIGHTS, _LEAST_SHARE = 2**22, 0.5


class EmbeddingRows:
    """The word embeddings of a model in training: a table of the rows that batches read, or the whole table.

    The whole table is a function of the rows, the first table and the steps alone, not of when it was asked for: a run
    that is saved or resumed has bitwise the weights of one that is not.

    Args:
        embedding: Embedding whose weight is replaced by the table of the read rows.
        ids: Ids of these rows [N], ascending, that of the padding included.
    """

    def __init__(self, embedding: nn.Embedding, ids: Tensor) -> None:
        self._embedding, self._ids, self._padding_id = embedding, ids, embedding.padding_idx
        self._first_table = embedding.weight.detach()
        self._places = torch.full((len(self._first_table),), len(ids))  # of an id that was never read: an error
        self._places[ids] = torch.arange(len(ids))
        self._weight = nn.Parameter(self._first_table[ids])
        self._hook: RemovableHandle | None = None
        self.shrink()

    def shrink(self) -> None:
        """Put the table of the read rows into the model, with their values in the whole table."""
        if self._hook is not None:
            return
        self._weight.data.copy_(self._embedding.weight.data[self._ids])
        self._embedding.weight = self._weight
        if self._padding_id is not None:
            self._embedding.padding_idx = int(self._places[self._padding_id])
        self._hook = self._embedding.register_forward_pre_hook(lambda _, inputs: (self._places[inputs[0]],))

    def restore(self, learning_rates: Iterable[float], model: nn.Module, config: FineTuningConfig) -> None:
        """Put the whole table into the model, after steps at these learning rates of the run."""
        if self._hook is None:
            return
        self._hook.remove()
        self._hook = None
        groups = parameter_groups(model, weight_decay=config.weight_decay, layer_decay=config.layer_decay)
        group = next(each for each in groups if any(weight is self._weight for weight in each["params"]))
        decay = group["rate_factor"] * group["weight_decay"]
        table = self._first_table * math.prod(1 - rate * decay for rate in learning_rates)
        table[self._ids] = self._weight.data
        self._embedding.weight, self._embedding.padding_idx = nn.Parameter(table), self._padding_id


def rows_to_train(model: nn.Module, batches: Epochs, num_epochs: int) -> EmbeddingRows | None:
    """Return the rows that any batch of a run reads, where training them alone saves time; None trains the whole table.

    That is on a CPU, for a large table with over half of the model's weights that no other module shares.
    """
    encoder: Any = model.bert
    table: Tensor = encoder.word_embeddings
    owners = [module for module in model.modules() if any(weight is table for weight in module._parameters.values())]
    num_weights = sum(weight.numel() for weight in model.parameters())
    if (
        table.device.type != "cpu"
        or not table.requires_grad
        or table.numel() < max(_LEAST_WEIGHTS, _LEAST_SHARE * num_weights)
        or len(owners) != 1
        or not isinstance(owners[0], nn.Embedding)
    ):
        return None
    is_read = torch.zeros(len(table), dtype=torch.bool)
    if owners[0].padding_idx is not None:
        is_read[owners[0].padding_idx] = True
    for epoch in range(num_epochs):  # each draws negatives of its own
        for batch in batches.of_epoch(epoch):
            for name, values in batch.items():
                if name.endswith("input_ids"):
                    is_read[values] = True
    return EmbeddingRows(owners[0], is_read.nonzero().flatten())
