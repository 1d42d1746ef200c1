"""The two tasks of the paper, and of each token whether the other segment has it as well.

A small encoder pretrained for an hour or two learns from the two tasks to compare two segments, or not, by chance:
next sentences can be told from random ones by topic alone. What it needs is attention from a token to the same token in
the other segment. Asked for it from the first step on, with a label at each token, it is learned within some hundred
steps, below the last layer, so that the first position can read it there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from bertline.pretraining.objectives.base import MLM_LOSS, LossTerm, Metric
from bertline.pretraining.objectives.mlm_nsp import MlmNspObjective

if TYPE_CHECKING:
    from torch import Tensor

    from bertline.modeling.bert import PreTrainingOutput
    from bertline.modeling.config import ModelConfig

ACCURACY = Metric(
    name="shared_accuracy",
    total="shared_correct",
    count="sequences",
    title="shared tokens right",
    share_of="a sequence's tokens for which it says rightly whether the other segment has them",
    note="mean over sequences",
    chart="shared_accuracy",
)
ABSENT = Metric(
    name="unshared_share",
    total="unshared",
    count="sequences",
    title="always saying no",
    note="to shared tokens",
    chart="shared_accuracy",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class MlmNspShared(MlmNspObjective):
    """The objective `mlm_nsp`, and for each token as the model reads it: does the other segment have it too?

    The logit is read from the states below the last layer, without weights of its own: the sum of the first half of the
    channels less that of the second half, divided by the root of their number. The layers can turn what they find into
    any direction, so a learned one would add nothing, and the encoder's folder has the weights of `mlm_nsp`.

    References:
        ERNIE 2.0 (arXiv 1907.12412), token-document relation: do other segments of the document have the token?
    """

    metrics: ClassVar[tuple[Metric, ...]] = (*MlmNspObjective.metrics, ACCURACY, ABSENT)
    title: ClassVar[str] = f"{MlmNspObjective.title}, with tokens that both segments share"
    summary: ClassVar[str] = (
        f"{MlmNspObjective.summary}. For {{shared_accuracy}} of the tokens of a sequence it says rightly whether the "
        "other segment has them (always saying no: {unshared_share})"
    )

    kind: Literal["mlm_nsp_shared"]
    shared_weight: float
    """Weight of the loss of shared tokens relative to the MLM loss. A large one keeps the MLM loss high for longer."""

    def __post_init__(self) -> None:
        if not self.shared_weight >= 0:
            raise ValueError(f"shared_weight must not be negative, found {self.shared_weight}")

    @property
    def terms(self) -> tuple[LossTerm, ...]:  # type: ignore[override]
        shared = LossTerm(name="shared_loss", count="sequences", weight=self.shared_weight)
        return (MLM_LOSS, self.pair_loss, shared)

    def problems(
        self, examples: Mapping[str, Any], batch_sizes: Sequence[int], *, model: ModelConfig, num_ranks: int
    ) -> Iterator[str]:
        """See `Objective.problems`: the layer below the last one must have looked at the other segment, and token types
        tell which it is."""
        yield from MlmNspObjective.problems(self, examples, batch_sizes, model=model, num_ranks=num_ranks)
        if not examples.get("layout", {"second_type": 1})["second_type"]:
            yield (
                f"objective.kind is {self.kind}, which tells the segments of a pair by their token types, but this "
                "tokenizer has a single type, as RoBERTa's. Use another objective, or tokenizer=wordpiece."
            )
        if model.num_hidden_layers < 2:
            yield (
                f"objective.kind is {self.kind}, which needs at least 2 layers, but model.num_hidden_layers is "
                f"{model.num_hidden_layers}. Use another objective, or a larger model."
            )

    def sums(self, output: PreTrainingOutput, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:  # type: ignore[override]
        from bertline.modeling.losses import shared_token_sums

        ids, sequences = batch["input_ids"], self.sequence_ids(batch)
        first, second = output.before_last.float().chunk(2, dim=-1)
        logits = (first.sum(-1) - second.sum(-1)) / output.before_last.shape[-1] ** 0.5
        loss, correct, absent = shared_token_sums(logits, ids, batch["token_type_ids"], sequences)
        return {
            **MlmNspObjective.sums(self, output, batch),
            "shared_loss": loss,
            "shared_correct": correct,
            "unshared": absent,
        }
