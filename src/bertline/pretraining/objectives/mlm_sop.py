"""Masked language model plus sentence order prediction, the two tasks of ALBERT."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from bertline.pretraining.objectives.base import Metric, Objective
from bertline.pretraining.objectives.mlm_nsp import PairObjective, pair_metrics


@dataclass(frozen=True, kw_only=True, slots=True)
class MlmSop(PairObjective):
    """Masked language model, and whether two consecutive segments of a document were swapped (label 1).

    Unlike random segments, swapped ones have the same subject, so that it does not tell the label. The head is the one
    of next sentence prediction: `seq_relationship` of `BertForPreTraining`, `sop_classifier` of `AlbertForPreTraining`.

    References:
        Lan et al., ALBERT (arXiv 1909.11942), section 3.1, inter-sentence coherence loss.
    """

    examples: ClassVar[str] = "sentence_order"
    families: ClassVar[Collection[str]] = ("bert", "albert")
    metrics: ClassVar[tuple[Metric, ...]] = pair_metrics("sop", "sentence order")
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
