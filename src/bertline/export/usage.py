"""Descriptions and code examples of each kind of model, for its card."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bertline.finetuning.task_file import FinishedTask
from bertline.kinds.registry import kind_part


@dataclass(frozen=True, kw_only=True, slots=True)
class VectorSettings:
    """How a model turns texts into vectors, for the files of the sentence-transformers package."""

    pooling: Literal["mean", "cls"]
    similarity: Literal["cosine", "dot"]
    prompts: dict[str, str]
    """Prefix of a text by its role."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """The part of a card that depends on the kind of task."""

    what: str
    """One sentence on inputs and outputs."""
    tag: str
    """Task tag of the hub, also used as `pipeline_tag` of the card if `pipeline` is true."""
    pipeline: bool
    """Whether a library of the hub (transformers, sentence-transformers) runs this task with the unmodified folder."""
    snippets: tuple[str, ...]
    """Python examples, with `NAME` in place of the folder."""
    limits: tuple[str, ...]
    """Limits that users should know."""
    vectors: VectorSettings | None = None
    """Settings of a model that embeds texts."""


def is_pair(config: Any, predictions: Path) -> bool:
    """Return whether an input of a task is a pair of texts, from its rows or, if these are missing, its source."""
    import pyarrow.parquet as pq

    if predictions.exists() and "text_pair" in pq.read_schema(predictions).names:
        pairs = pq.read_table(predictions, columns=["text_pair"])["text_pair"]
        return bool(pairs.null_count < len(pairs))
    return getattr(config.source, "text_pair_column", None) is not None or config.source.kind == "docs_match"


def usage_of(finished: FinishedTask, *, pair: bool) -> Usage:
    """Return the usage of a task's model.

    `kinds/NAME/export.py` has a function `usage(finished, *, pair) -> Usage`.

    Args:
        finished: Kind, labels and calibration of the task.
        pair: Whether an input is a pair of texts.
    """
    usage: Usage = kind_part(finished.kind.config.kind, "export").usage(finished, pair=pair)
    return usage
