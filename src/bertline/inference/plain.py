"""Tasks of fine-tuned checkpoints from elsewhere: Hugging Face folders without a task.json."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from bertline.finetuning.task_file import FinishedTask
from bertline.finetuning.task_kind import task_kind
from bertline.foundation.files import read_json
from bertline.kinds.classification.config import ClassificationTaskConfig
from bertline.kinds.question_answering.config import QuestionAnsweringTaskConfig
from bertline.kinds.reranking.config import RerankingTaskConfig
from bertline.kinds.token_classification.config import TokenClassificationTaskConfig
from bertline.modeling.huggingface import CONFIG_NAME
from bertline.modeling.weight_files import read_weight_names

# Question answering settings of the reference code (google-research/bert, run_squad.py).
_MAX_QUESTION_LENGTH = 64
_MAX_ANSWER_LENGTH = 30
_DOC_STRIDE = 128
_IOB2_LABEL = re.compile(r"O|[BI]-.+")


# Training settings; unused, since the model is not trained.
_NEVER_TRAINED: dict[str, Any] = {
    "source": None,
    "num_train_rows": None,
    "label_efficiency_rows": (),
    "max_dev_rows": None,
    "max_test_rows": None,
    "dev_fraction": 0.0,
    "test_fraction": 0.0,
    "split_seed": 0,
    "start_from": None,
    "num_trials": None,
    "space": {},
    "fine_tuning": {},
}


def task_of_plain_folder(folder: Path, *, max_length: int) -> FinishedTask | None:
    """Infer the task of a fine-tuned checkpoint from its config.json and the names of its weights.

    Classifiers truncate long texts, as is usual; token classification and question answering split them into windows.
    A classifier with one output is served as re-ranking.

    Args:
        folder: Folder of a BERT checkpoint.
        max_length: Maximum number of tokens of a sequence.

    Returns:
        The task; None for an encoder, and for token classification with tags other than IOB2.
    """
    settings = read_json(folder / CONFIG_NAME)
    names: dict[str, str] = settings.get("id2label") or {}
    labels = tuple(names[key] for key in sorted(names, key=int))
    has_head = {"classifier.weight", "qa_outputs.weight"} & read_weight_names(folder)
    base = {"max_length": max_length, **_NEVER_TRAINED}
    config: Any
    match (settings.get("architectures") or [""])[0]:
        case "BertForSequenceClassification" if has_head:
            several = settings.get("problem_type") == "multi_label_classification"
            config = _classification(labels, several, base)
        case "BertForTokenClassification" if has_head and all(_IOB2_LABEL.fullmatch(label) for label in labels):
            config = TokenClassificationTaskConfig(
                kind="token_classification",
                head="softmax",
                word_logits="first",
                word_case="plain",
                outside_margin="none",
                window_overlap=min(_DOC_STRIDE, max_length // 4),
                metric="entity_f1",
                **base,
            )
        case "BertForQuestionAnswering" if has_head:
            question_length = min(_MAX_QUESTION_LENGTH, max_length // 4)
            config = QuestionAnsweringTaskConfig(
                kind="question_answering",
                window_overlap=min(_DOC_STRIDE, (max_length - question_length) // 4),
                max_question_length=question_length,
                max_answer_length=_MAX_ANSWER_LENGTH,
                metric="f1",
                **base,
            )
        case _:
            return None
    return FinishedTask(task_kind(config, labels), {})


def _classification(labels: tuple[str, ...], several: bool, base: dict[str, Any]) -> Any:
    if len(labels) == 1:
        return RerankingTaskConfig(kind="reranking", num_candidates=1, num_negatives=0, metric="map", **base)
    return ClassificationTaskConfig(
        kind="classification",
        labels=labels,
        multi_label=several,
        metric="accuracy",
        long_texts="truncate",
        window_overlap=0,
        window_pooling="mean",
        calibration="none",
        shared_tokens="plain",
        **base,
    )
