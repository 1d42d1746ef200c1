"""Document types, before and after sentence splitting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Split = Literal["train", "validation"]


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """A document as read from its source, before cleaning, de-duplication and sentence splitting."""

    id: str
    """Location in the source, such as `torch.nn.functional`, `shard_00.txt.gz:12` or `rows.jsonl:4`."""
    group: str
    """Documents of one group are in the same split; if empty, the document is its own group."""
    paragraphs: tuple[str, ...]
    """Blocks of text in reading order, with the line breaks of the source; a sentence never crosses to the next."""
    split: Split | None = None
    """Split, if the source determines it; None selects it by a hash of the group."""
    language: str | None = None
    """Language, if the source says it of each document."""


@dataclass(frozen=True, slots=True)
class Document:
    """A document of the corpus."""

    id: str
    group: str
    sentences: tuple[str, ...]
    """Sentences in reading order, none empty, each on one line."""
