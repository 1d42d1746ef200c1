"""From a task's configuration to its kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bertline.finetuning.kinds.base import TaskKind
from bertline.finetuning.kinds.classification import Classification
from bertline.finetuning.kinds.question_answering import QuestionAnswering
from bertline.foundation.errors import ConfigError
from bertline.tasks.config import ClassificationTaskConfig, QuestionAnsweringTaskConfig, TaskConfig


def task_kind(config: TaskConfig, labels: Sequence[str]) -> TaskKind[Any, Any, Any]:
    """The kind of a task, with the labels of its manifest."""
    match config:
        case ClassificationTaskConfig():
            return Classification(config, labels)
        case QuestionAnsweringTaskConfig():
            return QuestionAnswering(config, labels)
        case _:
            raise ConfigError(f"{config.kind} is not there yet")
