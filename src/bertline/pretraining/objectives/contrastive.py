"""Contrastive learning: two segments of one document are near, those of other documents far, and blanks are filled.

Continuing a masked language model on domain text damages a sentence encoder (arXiv 2311.00408, section 4); the
contrastive term repairs that, and the masked one keeps what single tokens mean (SimCSE, arXiv 2104.08821, section 5 and
table 7). Both are computed in one pass, on masked text: the mask is also the noise that contrastive learning needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from bertline.foundation.checked import NonNegativeFloat, PositiveFloat, PositiveInt, at_least
from bertline.pretraining.objectives.base import MLM_ACCURACY, MLM_LOSS, LossTerm, Metric, Objective

if TYPE_CHECKING:
    from torch import Tensor

    from bertline.modeling.bert import MaskedLanguageModel
    from bertline.modeling.config import ModelConfig

_LOSS = LossTerm(
    name="contrastive_loss",
    count="sequences",
    title="contrastive loss, nats",
    caption="The loss of finding the other segment of the same document among those of a group.",
    baseline="chance",
    alarm="contrastive_at_chance",
)
_ACCURACY = Metric(
    name="contrastive_accuracy",
    total="contrastive_correct",
    count="sequences",
    title="pairs found",
    share_of="segments whose partner is nearest",
    baseline="chance",
)


class ContrastiveOutput(NamedTuple):
    """Output for the segments of pairs, A and B in turns: logits [2B, P, V] and pooled hidden states [2B, H]."""

    mlm_logits: Tensor
    vectors: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Contrastive(Objective):
    """InfoNCE on two segments of one document with the other pairs of a group as negatives, plus weighted MLM.

    A group is computed at once, on one rank, and its pairs are compared with each other only. So neither micro-batches
    nor the number of ranks changes the loss, and more negatives need a larger group.

    References: van den Oord et al., InfoNCE (arXiv 1807.03748), equation 4; symmetric as in CLIP (arXiv 2103.00020,
    figure 3); segments of one document: DeCLUTR (arXiv 2006.03659), section 3, which adds the MLM loss too.
    """

    num_segments: ClassVar[int] = 2
    examples: ClassVar[str] = "segment_pairs"
    metrics: ClassVar[tuple[Metric, ...]] = (_ACCURACY, MLM_ACCURACY)
    judged_by: ClassVar[str] = _LOSS.name
    advice: ClassVar[Mapping[str, str]] = {
        **Objective.advice,
        "contrastive_at_chance": "Raise optimizer.lr or train for longer, and see that documents have several "
        "sentences in their order: two segments of one document must have something in common.",
    }
    title: ClassVar[str] = "contrastive learning and the masked language model"
    summary: ClassVar[str] = (
        f"{Objective.summary}, and it finds the other segment of the same document in {{contrastive_accuracy}} of "
        "cases (chance: {contrastive_accuracy_baseline})"
    )

    kind: Literal["contrastive"]
    group_size: Annotated[int, at_least(2)]
    """Number of pairs that are compared with each other: each segment has `group_size - 1` negatives."""
    neighbours: PositiveInt
    """Number of pairs of a group that follow one another in the corpus, mostly in one document: hard negatives of each
    other. 1: all are drawn at random. Groups of validation are random always."""
    temperature: PositiveFloat
    """Divisor of the cosine similarities before the softmax; SimCSE has 0.05."""
    pooling: Literal["mean", "cls"]
    """Pooling of hidden states to one vector: the mean over all real positions, or the first position."""
    mlm_weight: NonNegativeFloat
    """Weight of the MLM loss relative to the contrastive one; 0 trains on the contrastive loss alone."""

    def check(self) -> None:
        if self.group_size % self.neighbours:
            raise ValueError(
                f"group_size must be a multiple of neighbours, found {self.group_size} and {self.neighbours}"
            )

    @property
    def terms(self) -> tuple[LossTerm, ...]:  # type: ignore[override]
        return (_LOSS, replace(MLM_LOSS, weight=self.mlm_weight))

    @property
    def pairs_together(self) -> int:  # type: ignore[override]
        return self.group_size

    @property
    def neighbours_together(self) -> int:  # type: ignore[override]
        return self.neighbours

    def problems(
        self, examples: Mapping[str, Any], batch_sizes: Sequence[int], *, model: ModelConfig, num_ranks: int
    ) -> Iterator[str]:
        """See `Objective.problems`: all pairs are of one document, and a step has whole groups on each rank."""
        if examples["random_next_prob"] not in (None, 0):
            yield (
                f"examples.random_next_prob is {examples['random_next_prob']}, but objective.kind=contrastive needs "
                f"both segments from one document. Use examples={self.examples}."
            )
        for index, size in enumerate(batch_sizes):
            if size % (self.group_size * num_ranks):
                devices = f" on {num_ranks} devices" if num_ranks > 1 else ""
                yield (
                    f"pretrain.phases[{index}].global_batch_size is {size}, not a multiple of objective.group_size "
                    f"({self.group_size}){devices}: a step has whole groups. Change one of them."
                )

    def output(self, model: MaskedLanguageModel, batch: Mapping[str, Tensor]) -> ContrastiveOutput:  # type: ignore[override]
        from bertline.modeling.heads import pooled, pooled_packed

        states, at_targets = self.states(model, batch)
        if "boundaries" in batch:
            vectors = pooled_packed(states, batch["sequence_ids"], batch["first_positions"], self.pooling)
        else:
            vectors = pooled(states, batch["attention_mask"], self.pooling)
        return ContrastiveOutput(model.mlm_logits(at_targets), vectors)

    def sums(self, output: ContrastiveOutput, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:  # type: ignore[override]
        """See `Objective.sums`; `batch` has the segments of whole groups, A and B in turns."""
        from bertline.foundation.labels import IGNORED_LABEL
        from bertline.modeling.losses import info_nce_sums

        is_used = batch["next_sentence_labels"][::2] != IGNORED_LABEL
        a, b = output.vectors[::2], output.vectors[1::2]
        # Packed rows are those of one group, padded to a common number of sequences.
        size = len(a) if "boundaries" in batch else self.group_size
        groups = zip(a.split(size), b.split(size), is_used.split(size), strict=True)
        losses, correct = zip(*(info_nce_sums(*group, temperature=self.temperature) for group in groups), strict=True)
        return {
            **Objective.sums(self, output, batch),  # type: ignore[arg-type]
            "contrastive_loss": sum(losses[1:], losses[0]),
            "contrastive_correct": sum(correct[1:], correct[0]),
        }

    def baselines(self, known: Mapping[str, Any]) -> dict[str, float]:
        """Return the unigram entropy, and loss and accuracy of a uniform guess among the segments of a group."""
        chance = {_LOSS.name: math.log(self.group_size), _ACCURACY.name: 1 / self.group_size}
        return {**Objective.baselines(self, known), **chance}
