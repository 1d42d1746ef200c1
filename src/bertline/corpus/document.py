"""What a document is: before its sentences are split, and after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Split = Literal["train", "validation"]


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """A document as a reader found it, before cleaning, de-duplication and sentence splitting."""

    id: str
    """Where it was read: `torch.nn.functional`, `shard_00.txt.gz:doc=12`, `rows.jsonl:4`."""
    group: str
    """Documents of one group go to the same side of the split."""
    paragraphs: tuple[str, ...]
    """Blocks of text in reading order; a sentence never crosses from one to the next."""
    split: Split | None = None
    """The side, where the source decides it; None leaves it to a hash of the group."""


@dataclass(frozen=True, slots=True)
class Document:
    """A document of the corpus."""

    id: str
    group: str
    sentences: tuple[str, ...]
    """In reading order, none empty, each on one line."""
