"""Loading of a model for inference: bertline's own folders, and checkpoints from elsewhere, whose task is inferred."""

import math
import re
from dataclasses import fields
from typing import Any, Literal

import torch

from bertline.encoders.loading import load_encoder, load_model
from bertline.finetuning.task_file import TASK_FILE, FinishedTask, read_task_file
from bertline.foundation.errors import ArtifactError, MachineError
from bertline.foundation.files import read_object
from bertline.foundation.progress import warn
from bertline.inference.model import LoadedLinearModel, LoadedModel
from bertline.kinds.classification import ClassificationTaskConfig
from bertline.kinds.predictor import LinearTaskPredictor, TaskPredictor
from bertline.kinds.question_answering import QuestionAnsweringTaskConfig
from bertline.kinds.registry import task_kind
from bertline.kinds.regression import RegressionTaskConfig
from bertline.kinds.reranking import RerankingTaskConfig
from bertline.kinds.tagging import TaggingTaskConfig
from bertline.kinds.token_classification import TokenClassificationTaskConfig
from bertline.linear.model import LINEAR_FILE, load_linear
from bertline.modeling.checkpoint import Checkpoint
from bertline.modeling.families import CONFIG_NAME
from bertline.modeling.text_vectors import CLASSIFIER, read_text_vector_modules
from bertline.tasks.config import BaseTaskConfig
from bertline.tokenization.vocabulary import resolve_folder

# The fused kernel is never slower without gradients and in fp32.
_ATTENTION: Literal["sdpa"] = "sdpa"
_DOC_STRIDE = 128
# Training settings; unused, since the model is not trained.
_NEVER_TRAINED: dict[str, Any] = {
    **dict.fromkeys(["source", *(field.name for field in fields(BaseTaskConfig))]),
    "label_efficiency_rows": (),
    "dev_fraction": 0.0,
    "test_fraction": 0.0,
    "split_seed": 0,
    "space": {},
    "fine_tuning": {},
}


def load_folder(name_or_folder: str, *, revision: str | None = None, device: str = "auto") -> LoadedModel:
    """Load a model with its tokenizer; see `bertline.load`."""
    folder = resolve_folder(name_or_folder, revision)
    chosen = _device(device)
    if (folder / LINEAR_FILE).is_file():
        predictor, title = load_linear(folder)
        if (finished := read_task_file(folder)) is None:
            raise ArtifactError(f"{folder / TASK_FILE} is missing. Copy the folder again.")
        task = LinearTaskPredictor(finished.kind, finished.calibration, predictor)
        task.label_sets = finished.label_sets
        return LoadedLinearModel(task, title=title, folder=folder, name=name_or_folder)
    checkpoint = Checkpoint.open(folder)
    tokenizer, max_length = checkpoint.tokenizer, checkpoint.config.max_position_embeddings
    settings = folder / "tokenizer_config.json"
    # Positions beyond the maximum length that the tokenizer declares may be untrained.
    declared = read_object(settings, missing_ok=True).get("model_max_length") or max_length
    if not isinstance(declared, int | float) or declared < 1:
        raise ArtifactError(f"{settings}: model_max_length is {declared!r:.200}; expected a number, at least 1.")
    max_length = int(min(max_length, declared))
    try:
        finished = read_task_file(folder) or _inferred_task(checkpoint, max_length=max_length)
    except ValueError as error:  # of the settings of its task
        raise ArtifactError(f"{folder} reads {max_length} tokens at most, too few for its task: {error}.") from error
    is_on_vectors = finished is None or (folder / CLASSIFIER).is_dir()
    modules = read_text_vector_modules(checkpoint) if is_on_vectors else None
    if finished is not None:
        model = finished.kind.load_model(folder, attention=_ATTENTION)
    elif checkpoint.has_mlm_head:
        model = load_model(checkpoint, "mlm", attention=_ATTENTION)
    else:
        model = load_encoder(checkpoint, attention=_ATTENTION)
    model = model.to(chosen).eval()
    fine_tuned = None
    if finished is not None:
        max_length = min(max_length, finished.kind.config.max_length)
        fine_tuned = TaskPredictor(finished.kind, finished.calibration, model, tokenizer)
        fine_tuned.label_sets = finished.label_sets
    if modules is not None:
        modules.dense.to(chosen)
    return LoadedModel(model, tokenizer, max_length=max_length, task=fine_tuned, name=name_or_folder, modules=modules)


def _inferred_task(checkpoint: Checkpoint, *, max_length: int) -> FinishedTask | None:
    """Infer the task of a fine-tuned checkpoint from its config.json and the names of its weights.

    Classifiers truncate long texts, as is usual; token classification and question answering split them into windows.
    A classifier with one output is served as regression if its `problem_type` says so, else as re-ranking. A token
    classifier whose tags are not IOB2 gives each word its tag, with a warning.

    Returns:
        The task; None for an encoder, and with a warning for regression of several numbers.
    """
    folder, settings = checkpoint.folder, checkpoint.settings
    problem_type = settings.get("problem_type")
    is_classifier = checkpoint.has("classifier.weight")
    if not is_classifier and not checkpoint.has("qa_outputs.weight"):
        return None
    labels = checkpoint.labels if is_classifier else ()
    base = {**_NEVER_TRAINED, "max_length": max_length}
    word_settings: dict[str, Any] = {
        "word_logits": "first",
        "word_case": "plain",
        "window_overlap": min(_DOC_STRIDE, max_length // 4),
    }
    if not settings.get("architectures"):
        raise ArtifactError(
            f"{folder / CONFIG_NAME} names no architectures, so it is not told whether its head reads texts or tokens. "
            'Add the class that it was saved from: "architectures": ["BertForSequenceClassification"]'
        )
    config: Any
    match settings["architectures"][0]:
        case "BertForSequenceClassification" if problem_type == "regression":
            if len(labels) > 1:
                warn(f"{folder} predicts {len(labels)} numbers for a text (problem_type: regression), not one.")
                return None
            config = RegressionTaskConfig(
                kind="regression", low=-math.inf, high=math.inf, head="linear", pooling="mean", metric="pearson", **base
            )
            labels = ()
        case "BertForSequenceClassification" if len(labels) == 1:
            config = RerankingTaskConfig(kind="reranking", num_candidates=1, num_negatives=0, metric="map", **base)
        case "BertForSequenceClassification":
            config = ClassificationTaskConfig(
                kind="classification",
                labels=labels,
                multi_label=problem_type == "multi_label_classification",
                metric="accuracy",
                long_texts="truncate",
                window_overlap=0,
                shared_tokens="plain",
                **base,
            )
        case "BertForTokenClassification" if all(re.fullmatch(r"O|[BI]-.+", label) for label in labels):
            config = TokenClassificationTaskConfig(
                kind="token_classification",
                head="softmax",
                outside_margin="none",
                metric="entity_f1",
                **word_settings,
                **base,
            )
        case "BertForTokenClassification":
            warn(
                f"{folder}: its tags ({', '.join(labels[:5])}{', ...' * (len(labels) > 5)}) are not IOB2 (O, B-TYPE, "
                "I-TYPE), so each word gets its tag, and words are not joined to entities."
            )
            config = TaggingTaskConfig(kind="tagging", metric="accuracy", **word_settings, **base)
        case "BertForQuestionAnswering":
            labels = ()  # where the head is called a classifier (ModernBERT), it has two outputs all the same
            # These lengths are those of the reference code (google-research/bert, run_squad.py).
            question_length = min(64, max_length // 4)
            config = QuestionAnsweringTaskConfig(
                kind="question_answering",
                window_overlap=min(_DOC_STRIDE, (max_length - question_length) // 4),
                max_question_length=question_length,
                max_answer_length=30,
                metric="f1",
                **base,
            )
        case _:
            return None
    return FinishedTask(task_kind(config, labels), {})


def _device(name: str) -> torch.device:
    if name == "auto":
        mps_or_cpu = "mps" if torch.backends.mps.is_available() else "cpu"
        return torch.device("cuda" if torch.cuda.is_available() else mps_or_cpu)
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    # PyTorch raises a different error for each kind of missing device.
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise MachineError(
            f"device {name!r} cannot be used here ({str(error).splitlines()[0]}). Use auto or cpu."
        ) from error
    return device
