"""Selection of the predictor for a fine-tuned model."""

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
from bertline.inference.predictors.answers import QuestionAnsweringPredictor
from bertline.inference.predictors.base import TaskPredictor
from bertline.inference.predictors.blanks import FillMaskPredictor
from bertline.inference.predictors.rankings import RerankingPredictor, RetrievalPredictor
from bertline.inference.predictors.summaries import SummarisationPredictor
from bertline.inference.predictors.texts import ClassificationPredictor, MultiLabelPredictor, RegressionPredictor
from bertline.inference.predictors.words import TokenClassificationPredictor
from bertline.tokenization.tokenizer import Tokenizer

_PREDICTORS: dict[type, type[TaskPredictor]] = {
    Classification: ClassificationPredictor,
    MultiLabel: MultiLabelPredictor,
    Regression: RegressionPredictor,
    TokenClassification: TokenClassificationPredictor,
    QuestionAnswering: QuestionAnsweringPredictor,
    Retrieval: RetrievalPredictor,
    Reranking: RerankingPredictor,
    Summarisation: SummarisationPredictor,
    FillMask: FillMaskPredictor,
}


def predictor_of(finished: FinishedTask, model: nn.Module, tokenizer: Tokenizer) -> TaskPredictor:
    """Wrap a fine-tuned model for prediction on user inputs.

    Raises:
        ArtifactError: The kind of task does not support prediction.
    """
    chosen = _PREDICTORS.get(type(finished.kind))
    if chosen is None:
        raise ArtifactError(f"models of the kind {finished.kind.config.kind!r} cannot be used for predicting.")
    return chosen(finished.kind, finished.calibration, model, tokenizer)
