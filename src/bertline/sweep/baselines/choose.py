"""From a task's kind to its baselines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bertline.finetuning.kinds.base import TaskKind
from bertline.finetuning.kinds.classification import Classification
from bertline.finetuning.kinds.fill_mask import FillMask
from bertline.finetuning.kinds.multi_label import MultiLabel
from bertline.finetuning.kinds.question_answering import QuestionAnswering
from bertline.finetuning.kinds.regression import Regression
from bertline.finetuning.kinds.reranking import Reranking
from bertline.finetuning.kinds.retrieval import Retrieval
from bertline.finetuning.kinds.summarisation import Summarisation
from bertline.finetuning.kinds.token_classification import TokenClassification
from bertline.sweep.baselines.answers import answer_baselines
from bertline.sweep.baselines.base import Baseline
from bertline.sweep.baselines.fill_mask import fill_mask_baselines
from bertline.sweep.baselines.numbers import regression_baselines
from bertline.sweep.baselines.search import reranking_baselines, retrieval_baselines
from bertline.sweep.baselines.summaries import summary_baselines
from bertline.sweep.baselines.tags import tagging_baselines
from bertline.sweep.baselines.text import classification_baselines, multi_label_baselines
from bertline.tasks.storage import SplitName
from bertline.tokenization.tokenizer import Tokenizer


def baselines_of(
    kind: TaskKind[Any, Any, Any],
    train: Any,
    dev: Any,
    tests: Mapping[SplitName, Any],
    tokenizer: Tokenizer | None = None,
) -> list[Baseline]:
    """The baselines of a task, each with predictions for dev and every test split; deterministic, no seeds.

    `tokenizer` is the encoder's, for tasks that count its pieces; without it such a task has no baseline.
    """
    match kind:
        case Classification():
            return classification_baselines(kind, train, dev, tests)
        case MultiLabel():
            return multi_label_baselines(kind, train, dev, tests)
        case Regression():
            return regression_baselines(kind, train, dev, tests)
        case TokenClassification():
            return tagging_baselines(kind, train, dev, tests)
        case QuestionAnswering():
            return answer_baselines(train, dev, tests)
        case Retrieval():
            return retrieval_baselines(kind, dev, tests)
        case Reranking():
            return reranking_baselines(kind, dev, tests)
        case Summarisation():
            return summary_baselines(dev, tests)
        case FillMask():
            return [] if tokenizer is None else fill_mask_baselines(kind, train, dev, tests, tokenizer)
        case _:
            return []
