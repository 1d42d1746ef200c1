"""Selection of the predictor for a fine-tuned model."""

from __future__ import annotations

from torch import nn

from bertline.finetuning.task_file import FinishedTask
from bertline.foundation.errors import ArtifactError
from bertline.inference.predictors.answers import QuestionAnsweringPredictor
from bertline.inference.predictors.base import TaskPredictor
from bertline.inference.predictors.blanks import FillMaskPredictor
from bertline.inference.predictors.rankings import RerankingPredictor, RetrievalPredictor
from bertline.inference.predictors.summaries import SummarisationPredictor
from bertline.inference.predictors.texts import ClassificationPredictor, MultiLabelPredictor, RegressionPredictor
from bertline.inference.predictors.words import TokenClassificationPredictor
from bertline.kinds.classification.model import Classification
from bertline.kinds.classification.multi_label import MultiLabel
from bertline.kinds.fill_mask.model import FillMask
from bertline.kinds.question_answering.model import QuestionAnswering
from bertline.kinds.regression.model import Regression
from bertline.kinds.reranking.model import Reranking
from bertline.kinds.retrieval.model import Retrieval
from bertline.kinds.summarisation.model import Summarisation
from bertline.kinds.token_classification.model import TokenClassification
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
