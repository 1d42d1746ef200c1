"""Configuration of a task of the kind `tagging`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bertline.tasks.config import WordTaskConfig
from bertline.tasks.source_config import FilesSourceConfig, OnBadRow


@dataclass(frozen=True, kw_only=True, slots=True)
class ConlluSourceConfig(FilesSourceConfig):
    """CoNLL-U files (universaldependencies.org/format.html)."""

    kind: Literal["conllu"]
    tags: Literal["upos", "xpos"]
    """Column of the tags: universal parts of speech, or those of the language."""
    on_bad_row: OnBadRow
    """Handling of a line that does not have ten columns, or has no word or no tag. `skip` drops its whole sentence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaggingTaskConfig(WordTaskConfig):
    """Tagging of words, where every word has a tag of its own, such as its part of speech."""

    kind: Literal["tagging"]
    source: ConlluSourceConfig
    metric: Literal["accuracy", "macro_f1"]
    """Metric on dev that selects trials; higher is better."""
