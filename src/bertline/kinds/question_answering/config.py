"""Configuration of a task of the kind `question_answering`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.source_config import SquadSourceConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class QuestionAnsweringTaskConfig(BaseTaskConfig):
    """Extractive question answering: the answer is a span of the context, or none if the data has such questions."""

    kind: Literal["question_answering"]
    source: SquadSourceConfig
    window_overlap: int
    """Number of context tokens that consecutive windows share (BERT's `doc_stride` counts the others)."""
    max_question_length: int
    """Maximum length of a question in tokens; longer questions are truncated at the end."""
    max_answer_length: int
    """Maximum length of an answer in tokens."""
    metric: Literal["f1", "exact_match"]
    """Metric on dev that selects trials; higher is better."""

    def __post_init__(self) -> None:
        BaseTaskConfig.__post_init__(self)
        for name, least in (("window_overlap", 0), ("max_question_length", 1), ("max_answer_length", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, found {getattr(self, name)}")
        # [CLS] and two [SEP]; `Layout.room` is exact, with the special tokens of a tokenizer.
        room = self.max_length - self.max_question_length - 3
        if self.window_overlap >= room:
            raise ValueError(
                f"window_overlap is {self.window_overlap}, but next to a question of max_question_length="
                f"{self.max_question_length} a sequence of max_length={self.max_length} has room for {room} tokens of "
                "context; overlap by less than that"
            )
