"""Selection of the kind of a task from its configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never

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
from bertline.tasks.config import (
    ClassificationTaskConfig,
    FillMaskTaskConfig,
    QuestionAnsweringTaskConfig,
    RegressionTaskConfig,
    RerankingTaskConfig,
    RetrievalTaskConfig,
    SummarisationTaskConfig,
    TaskConfig,
    TokenClassificationTaskConfig,
)


def task_kind(config: TaskConfig, labels: Sequence[str]) -> TaskKind[Any, Any, Any]:
    """Return the kind of a task; `labels` are those of its manifest."""
    match config:
        case ClassificationTaskConfig():
            return MultiLabel(config, labels) if config.multi_label else Classification(config, labels)
        case RegressionTaskConfig():
            return Regression(config, labels)
        case QuestionAnsweringTaskConfig():
            return QuestionAnswering(config, labels)
        case TokenClassificationTaskConfig():
            return TokenClassification(config, labels)
        case RetrievalTaskConfig():
            return Retrieval(config, labels)
        case RerankingTaskConfig():
            return Reranking(config, labels)
        case SummarisationTaskConfig():
            return Summarisation(config, labels)
        case FillMaskTaskConfig():
            return FillMask(config, labels)
        case _:
            assert_never(config)
