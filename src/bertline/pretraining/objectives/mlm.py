"""Masked language model alone: full sentences in one segment, no pooler and no head on it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar, Literal

from bertline.modeling.families import FAMILIES
from bertline.pretraining.objectives.base import Objective


@dataclass(frozen=True, kw_only=True, slots=True)
class Mlm(Objective):
    """Masked language model on full sentences, without sentence pairs (RoBERTa, arXiv 1907.11692, section 4.2)."""

    families: ClassVar[Collection[str]] = tuple(FAMILIES)

    kind: Literal["mlm"]
