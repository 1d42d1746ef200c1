"""Configuration of a task of the kind `tagging`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.source_config import OnBadRow


@dataclass(frozen=True, kw_only=True, slots=True)
class ConlluSourceConfig:
    """CoNLL-U files (universaldependencies.org/format.html)."""

    kind: Literal["conllu"]
    path: str
    """Folder of the files, or a single file from which all splits are cut; then the names below are not used."""
    train_file: str | None
    """File of the train rows, in `path`; see `test_file`."""
    dev_file: str | None
    """File of the dev rows, in `path`; see `test_file`."""
    test_file: str | None
    """File names in `path`. A missing dev or test is cut from train by a hash of the row."""
    tags: Literal["upos", "xpos"]
    """Column of the tags: universal parts of speech, or those of the language."""
    on_bad_row: OnBadRow
    """Handling of a line that does not have ten columns, or has no word or no tag. `skip` drops its whole sentence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaggingTaskConfig(BaseTaskConfig):
    """Tagging of words, where every word has a tag of its own, such as its part of speech."""

    kind: Literal["tagging"]
    source: ConlluSourceConfig
    word_logits: Literal["first", "mean"]
    """Logits of a word: those of its first token, or the mean over its tokens."""
    word_case: Literal["plain", "marked"]
    """`marked` shows a lower-casing encoder which words have capitals, through separate token types."""
    window_overlap: int
    """Number of tokens that consecutive windows of a sentence longer than `max_length` share."""
    metric: Literal["accuracy", "macro_f1"]
    """Metric on dev that selects trials; higher is better. `f1` is the F1 of the second of two labels (MRPC, QQP)."""

    def __post_init__(self) -> None:
        BaseTaskConfig.__post_init__(self)
        room = self.max_length - 2  # [CLS] and [SEP]
        if not 0 <= self.window_overlap < room:
            raise ValueError(
                f"window_overlap must be at least 0 and below the {room} tokens that a window of max_length="
                f"{self.max_length} holds besides [CLS] and [SEP], found {self.window_overlap}"
            )
