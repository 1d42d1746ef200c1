"""Objectives on pairs of segments: next sentence prediction (BERT), sentence order (ALBERT), and shared tokens."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from bertline.foundation.checked import NonNegativeFloat
from bertline.pretraining.objectives.base import MLM_ACCURACY, MLM_LOSS, LossTerm, Metric, Objective

if TYPE_CHECKING:
    from torch import Tensor

    from bertline.modeling.config import ModelConfig


def pair_accuracy(task: str, name: str) -> Metric:
    """Return the accuracy of the labels of pairs; `task` is the prefix of the names."""
    return Metric(
        name=f"{task}_accuracy",
        total=f"{task}_correct",
        count="sequences",
        title=f"{name} right",
        share_of=f"sentence pairs judged right ({name})",
        baseline="chance",
        alarm=f"{task}_at_chance",
        loss=f"{task}_loss",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class PairObjective(Objective):
    """A masked language model that also learns one of two labels of each pair of segments, at the first position."""

    num_segments: ClassVar[int] = 2
    with_pooler: ClassVar[bool] = True
    task: ClassVar[str]
    """Prefix of the names of its loss, accuracy, weight and alarm."""
    label: ClassVar[str]
    """What label 1 means, in words."""
    label_prob: ClassVar[str]
    """Setting of the examples that is the share of label 1."""

    @property
    def pair_loss(self) -> LossTerm:
        """The term of the labels of pairs."""
        return LossTerm(name=f"{self.task}_loss", count="sequences", weight=getattr(self, f"{self.task}_weight"))

    @property
    def terms(self) -> tuple[LossTerm, ...]:  # type: ignore[override]
        return (MLM_LOSS, self.pair_loss)

    def problems(
        self, examples: Mapping[str, Any], batch_sizes: Sequence[int], *, model: ModelConfig, num_ranks: int
    ) -> Iterator[str]:
        """See `Objective.problems`: label 1 of the examples must be that of the objective."""
        swapped = examples.get("swapped_prob")
        if bool(swapped) != (self.label_prob == "swapped_prob"):
            yield (
                f"examples.swapped_prob is {swapped or 'null'}, but objective.kind is {self.kind}, whose label 1 is "
                f"{self.label}. Use examples={self.examples}, or another objective."
            )

    def sums(self, output: Any, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        from bertline.modeling.losses import sequence_loss_sum, sequences_correct

        labels = batch["next_sentence_labels"]
        return {
            **Objective.sums(self, output, batch),
            f"{self.task}_loss": sequence_loss_sum(output.nsp_logits, labels),
            f"{self.task}_correct": sequences_correct(output.nsp_logits, labels).float(),
        }

    def baselines(self, known: Mapping[str, Any]) -> dict[str, float]:
        """Return the unigram entropy, and the accuracy of always predicting the more frequent label.

        That accuracy is 0.5 if both labels are equally frequent, as in the papers (BERT, A.2).
        """
        baselines = Objective.baselines(self, known)
        if self.label_prob in known:
            baselines[f"{self.task}_accuracy"] = max(known[self.label_prob], 1 - known[self.label_prob])
        return baselines


@dataclass(frozen=True, kw_only=True, slots=True)
class MlmNsp(PairObjective):
    """Masked language model plus next sentence prediction on sentence pairs (BERT, arXiv 1810.04805, section 3.1)."""

    examples: ClassVar[str] = "sentence_pairs"
    metrics: ClassVar[tuple[Metric, ...]] = (MLM_ACCURACY, pair_accuracy("nsp", "next sentence"))
    advice: ClassVar[Mapping[str, str]] = {
        **Objective.advice,
        "nsp_at_chance": "It comes after the blanks, so wait while the MLM loss is near the unigram entropy. Else see "
        "that documents have several sentences in their order; where text has no order, set objective.nsp_weight=0 "
        "or use objective=mlm with examples=full_sentences.",
    }
    title: ClassVar[str] = "the masked language model and next sentence prediction"
    summary: ClassVar[str] = (
        f"{Objective.summary}, and it tells the next sentence from a random one in {{nsp_accuracy}} of cases (chance: "
        "{nsp_accuracy_baseline})"
    )
    task: ClassVar[str] = "nsp"
    label: ClassVar[str] = "a random second segment"
    label_prob: ClassVar[str] = "random_next_prob"

    kind: Literal["mlm_nsp"]
    nsp_weight: float
    """Weight of the NSP loss relative to the MLM loss; the paper adds the two (1.0)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MlmSop(PairObjective):
    """Masked language model, and whether two consecutive segments of a document were swapped (label 1).

    Unlike random segments, swapped ones have the same subject, so that it does not tell the label. The head is the one
    of next sentence prediction: `seq_relationship` of `BertForPreTraining`, `sop_classifier` of `AlbertForPreTraining`.

    Reference: Lan et al., ALBERT (arXiv 1909.11942), section 3.1, inter-sentence coherence loss.
    """

    examples: ClassVar[str] = "sentence_order"
    families: ClassVar[Collection[str]] = ("bert", "albert")
    metrics: ClassVar[tuple[Metric, ...]] = (MLM_ACCURACY, pair_accuracy("sop", "sentence order"))
    advice: ClassVar[Mapping[str, str]] = {
        **Objective.advice,
        "sop_at_chance": "It comes after the blanks, and a small encoder may never learn it. Else see that documents "
        "have several sentences in their order, or use objective=mlm with examples=full_sentences.",
    }
    title: ClassVar[str] = "the masked language model and sentence order prediction"
    summary: ClassVar[str] = (
        f"{Objective.summary}, and it tells whether two segments were swapped in {{sop_accuracy}} of cases (chance: "
        "{sop_accuracy_baseline})"
    )
    task: ClassVar[str] = "sop"
    label: ClassVar[str] = "swapped segments"
    label_prob: ClassVar[str] = "swapped_prob"

    kind: Literal["mlm_sop"]
    sop_weight: float
    """Weight of the loss of sentence order relative to the MLM loss; the paper adds the two (1.0)."""


SHARED_ACCURACY = Metric(
    name="shared_accuracy",
    total="shared_correct",
    count="sequences",
    title="shared tokens right",
    share_of="a sequence's tokens for which it says rightly whether the other segment has them",
    chart="shared_accuracy",
)
UNSHARED_SHARE = Metric(
    name="unshared_share", total="unshared", count="sequences", title="always saying no", chart="shared_accuracy"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class MlmNspShared(MlmNsp):
    """The objective `mlm_nsp`, and for each token as the model reads it: does the other segment have it too?

    Next sentences can be told from random ones by topic alone, so a small encoder learns only by chance to compare two
    segments. Asked for it at each token, it learns the attention to the same token of the other segment within some
    hundred steps, below the last layer, so that the first position can read it there.

    The logit is read from the states below the last layer, without weights of its own (the encoder's folder has those
    of `mlm_nsp`): the sum of the first half of the channels less that of the second, over the root of their number.

    Reference: ERNIE 2.0 (arXiv 1907.12412), token-document relation: do other segments of the document have the token?
    """

    metrics: ClassVar[tuple[Metric, ...]] = (*MlmNsp.metrics, SHARED_ACCURACY, UNSHARED_SHARE)
    title: ClassVar[str] = f"{MlmNsp.title}, with tokens that both segments share"
    summary: ClassVar[str] = (
        f"{MlmNsp.summary}. For {{shared_accuracy}} of the tokens of a sequence it says rightly whether the "
        "other segment has them (always saying no: {unshared_share})"
    )

    kind: Literal["mlm_nsp_shared"]  # type: ignore[assignment]
    shared_weight: NonNegativeFloat
    """Weight of the loss of shared tokens relative to the MLM loss. A large one keeps the MLM loss high for longer."""

    @property
    def terms(self) -> tuple[LossTerm, ...]:  # type: ignore[override]
        shared = LossTerm(name="shared_loss", count="sequences", weight=self.shared_weight)
        return (MLM_LOSS, self.pair_loss, shared)

    def problems(
        self, examples: Mapping[str, Any], batch_sizes: Sequence[int], *, model: ModelConfig, num_ranks: int
    ) -> Iterator[str]:
        """See `Objective.problems`: the layer below the last one must have looked at the other segment, and token types
        tell which it is."""
        yield from MlmNsp.problems(self, examples, batch_sizes, model=model, num_ranks=num_ranks)
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

    def sums(self, output: Any, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        from bertline.modeling.losses import shared_token_sums

        ids, sequences = batch["input_ids"], self.sequence_ids(batch)
        first, second = output.before_last.float().chunk(2, dim=-1)
        logits = (first.sum(-1) - second.sum(-1)) / output.before_last.shape[-1] ** 0.5
        loss, correct, absent = shared_token_sums(logits, ids, batch["token_type_ids"], sequences)
        return {**MlmNsp.sums(self, output, batch), "shared_loss": loss, "shared_correct": correct, "unshared": absent}
