"""Configuration of a task of the kind `sentence_labelling`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bertline.tasks.bad_rows import label_in
from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.source_config import FilesSourceConfig, OnBadRow


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledSentencesSourceConfig(FilesSourceConfig):
    """JSONL files of documents, each with a list of sentences and a list of their labels."""

    kind: Literal["labelled_sentences"]
    sentences_column: str
    """Column of the list of sentences."""
    labels_column: str
    """Column of the list of their labels, one for each sentence, as texts or integers."""
    on_bad_row: OnBadRow
    """Handling of rows with a missing column, an empty sentence, lists of different lengths or an unknown label."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SentenceLabellingTaskConfig(BaseTaskConfig):
    """One label for each sentence of a document, such as its role in an abstract (arXiv 1909.04054)."""

    kind: Literal["sentence_labelling"]
    source: LabelledSentencesSourceConfig
    labels: tuple[str, ...] | None
    """Labels in order; None takes those of the train split, by value if all are numbers, else by text. A row with
    another label is invalid."""
    metric: Literal["accuracy", "macro_f1"]
    """Metric on dev that selects trials, over all sentences; higher is better."""

    def __post_init__(self) -> None:
        BaseTaskConfig.__post_init__(self)
        if self.labels is not None and (
            len(self.labels) < 2 or len(set(map(label_in, self.labels))) < len(self.labels)
        ):
            raise ValueError(f"labels must be 2 at least, each once, found {list(self.labels)}")
        if self.max_length < 3:
            raise ValueError(f"max_length must leave room for [CLS], a token and [SEP], found {self.max_length}")
