"""The objective as a module: the model and its losses in one, so that they are compiled together."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from bertline.modeling.bert import MaskedLanguageModel, MaskedLMOutput, PackedRows, PreTrainingOutput
from bertline.pretraining.objectives.base import Objective


class PreTrainingLosses(nn.Module):
    """Runs the model on a micro-batch and computes the sums of the objective.

    The losses are sums, not means: the caller divides by the counts of the global batch, so that every target has the
    same weight.
    """

    def __init__(self, model: MaskedLanguageModel, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self.objective = objective

    def forward(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run on the arrays of `examples.batching`, or on packed rows of `examples.packing`, as tensors.

        Without `attention_mask`, no row has padding.

        Returns:
            The sums by name; see `Objective.sums`.
        """
        output = self._packed(batch) if "boundaries" in batch else self._padded(batch)
        return self.objective.sums(output, batch)

    def _padded(self, batch: Mapping[str, Tensor]) -> PreTrainingOutput | MaskedLMOutput:
        attention_mask = batch.get("attention_mask")
        return self.model(batch["input_ids"], batch["token_type_ids"], attention_mask, batch["masked_positions"])

    def _packed(self, batch: Mapping[str, Tensor]) -> PreTrainingOutput | MaskedLMOutput:
        rows = PackedRows(**{name: batch[name] for name in PackedRows._fields})
        return self.model.forward_packed(rows, batch["masked_positions"], batch["first_positions"])
