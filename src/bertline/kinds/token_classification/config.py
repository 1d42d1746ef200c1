"""Configuration of a task of the kind `token_classification`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bertline.demo.config import DocsParametersSourceConfig
from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.source_config import ConllSourceConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenClassificationTaskConfig(BaseTaskConfig):
    """Tagging of words, such as names of people, places or parameters, with IOB2 tags (`O`, `B-TYPE`, `I-TYPE`)."""

    kind: Literal["token_classification"]
    source: DocsParametersSourceConfig | ConllSourceConfig
    head: Literal["softmax", "crf"]
    """`softmax` scores each word by itself, `crf` whole tag sequences (conditional random field)."""
    word_logits: Literal["first", "mean"]
    """Logits of a word: those of its first token (paper, section 5.3), or the mean over its tokens in the window from
    which it is predicted."""
    word_case: Literal["plain", "marked"]
    """`marked` shows a lower-casing encoder which words have capitals, through separate token types."""
    outside_margin: Literal["none", "dev"]
    """`dev` (softmax only) predicts O only if its logit exceeds that of the best tag by a margin, which is tuned for
    the metric on dev. Most words are O, so plain argmax misses entities."""
    window_overlap: int
    """Number of tokens that consecutive windows of a sentence longer than `max_length` share."""
    metric: Literal["entity_f1"]
    """Metric on dev that selects trials; higher is better."""

    def __post_init__(self) -> None:
        BaseTaskConfig.__post_init__(self)
        if self.outside_margin == "dev" and self.head == "crf":
            raise ValueError("outside_margin: dev is for head: softmax; a CRF decides on whole label sequences")
        room = self.max_length - 2  # [CLS] and [SEP]
        if not 0 <= self.window_overlap < room:
            raise ValueError(
                f"window_overlap must be at least 0 and below the {room} tokens that a window of max_length="
                f"{self.max_length} holds besides [CLS] and [SEP], found {self.window_overlap}"
            )
