"""The kinds of task: a new one is a file and a line, `kinds/NAME.py` and one here, or an entry point of a package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from bertline.foundation.errors import ArtifactError
from bertline.foundation.plugins import with_plugins
from bertline.kinds.base import TaskKind
from bertline.kinds.classification import Classification
from bertline.kinds.question_answering import QuestionAnswering
from bertline.kinds.regression import Regression
from bertline.kinds.reranking import Reranking
from bertline.kinds.retrieval import Retrieval
from bertline.kinds.sentence_labelling import SentenceLabelling
from bertline.kinds.summarisation import Summarisation
from bertline.kinds.tagging import Tagging
from bertline.kinds.token_classification import TokenClassification

_OWN: dict[str, type[TaskKind[Any, Any, Any]]] = {
    "classification": Classification,
    "regression": Regression,
    "token_classification": TokenClassification,
    "question_answering": QuestionAnswering,
    "retrieval": Retrieval,
    "reranking": Reranking,
    "summarisation": Summarisation,
    "tagging": Tagging,
    "sentence_labelling": SentenceLabelling,
}


KINDS = with_plugins("bertline.kinds", _OWN)
"""Kinds by name, which is the value of `kind` in the configuration of a task."""

if TYPE_CHECKING:
    TaskConfig: TypeAlias = Any  # a union of classes that are known when the program runs
else:
    TaskConfig = Union[tuple(kind.config_class for kind in KINDS.values())]  # noqa: UP007


def kind_named(name: str) -> type[TaskKind[Any, Any, Any]]:
    """Return the class of a kind of task.

    Raises:
        ArtifactError: There is no such kind.
    """
    if name not in KINDS:
        raise ArtifactError(f"there is no kind of task {name!r}; expected one of {', '.join(KINDS)}.")
    return KINDS[name]


def task_kind(config: TaskConfig, labels: Sequence[str]) -> TaskKind[Any, Any, Any]:
    """Return the kind of a task; `labels` are those of its manifest."""
    return kind_named(config.kind).of(config, labels)
