"""Configuration of a task of the kind `token_classification`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bertline.demo.config import DocsParametersSourceConfig
from bertline.tasks.config import WordTaskConfig
from bertline.tasks.source_config import ConllSourceConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenClassificationTaskConfig(WordTaskConfig):
    """Tagging of words, such as names of people, places or parameters, with IOB2 tags (`O`, `B-TYPE`, `I-TYPE`)."""

    kind: Literal["token_classification"]
    source: DocsParametersSourceConfig | ConllSourceConfig
    head: Literal["softmax", "crf"]
    """`softmax` scores each word by itself, `crf` whole tag sequences (conditional random field)."""
    outside_margin: Literal["none", "dev"]
    """`dev` (softmax only) predicts O only if its logit exceeds that of the best tag by a margin, which is tuned for
    the metric on dev. Most words are O, so plain argmax misses entities."""
    metric: Literal["entity_f1"]
    """Metric on dev that selects trials; higher is better."""

    def __post_init__(self) -> None:
        WordTaskConfig.__post_init__(self)
        if self.outside_margin == "dev" and self.head == "crf":
            raise ValueError("outside_margin: dev is for head: softmax; a CRF decides on whole label sequences")
