"""Selection of the served task for a fine-tuned model."""

from __future__ import annotations

from torch import nn

from bertline.finetuning.kinds.classification import Classification
from bertline.finetuning.kinds.fill_mask import FillMask
from bertline.finetuning.kinds.multi_label import MultiLabel
from bertline.finetuning.kinds.question_answering import QuestionAnswering
from bertline.finetuning.kinds.regression import Regression
from bertline.finetuning.kinds.reranking import Reranking
from bertline.finetuning.kinds.retrieval import Retrieval
from bertline.finetuning.kinds.summarisation import Summarisation
from bertline.finetuning.kinds.token_classification import TokenClassification
from bertline.finetuning.task_file import FinishedTask
from bertline.foundation.errors import ArtifactError
from bertline.inference.served.answers import ServedQuestionAnswering
from bertline.inference.served.base import ServedTask
from bertline.inference.served.blanks import ServedFillMask
from bertline.inference.served.rankings import ServedReranking, ServedRetrieval
from bertline.inference.served.summaries import ServedSummarisation
from bertline.inference.served.texts import ServedClassification, ServedMultiLabel, ServedRegression
from bertline.inference.served.words import ServedTokenClassification
from bertline.tokenization.tokenizer import Tokenizer

_SERVED: dict[type, type[ServedTask]] = {
    Classification: ServedClassification,
    MultiLabel: ServedMultiLabel,
    Regression: ServedRegression,
    TokenClassification: ServedTokenClassification,
    QuestionAnswering: ServedQuestionAnswering,
    Retrieval: ServedRetrieval,
    Reranking: ServedReranking,
    Summarisation: ServedSummarisation,
    FillMask: ServedFillMask,
}


def served_task(finished: FinishedTask, model: nn.Module, tokenizer: Tokenizer) -> ServedTask:
    """Wrap a fine-tuned model for prediction on user inputs.

    Raises:
        ArtifactError: The kind of task does not support prediction.
    """
    chosen = _SERVED.get(type(finished.kind))
    if chosen is None:
        raise ArtifactError(f"models of the kind {finished.kind.config.kind!r} cannot be used for predicting.")
    return chosen(finished.kind, finished.calibration, model, tokenizer)
