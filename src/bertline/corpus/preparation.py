"""What worker processes do with documents: clean, compute duplicate keys, split sentences."""

from __future__ import annotations

from dataclasses import dataclass

from bertline.corpus.cleaning import clean, duplicate_key
from bertline.corpus.document import SourceDocument, Split
from bertline.corpus.sentences import split_sentences


@dataclass(frozen=True, slots=True)
class PreparedParagraph:
    """One cleaned block of text."""

    key: bytes
    """Equal for blocks that differ only in case and white space."""
    characters: int
    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A cleaned document whose duplicates are not yet removed."""

    id: str
    group: str
    split: Split | None
    key: bytes
    paragraphs: tuple[PreparedParagraph, ...]


def prepare_documents(batch: list[SourceDocument]) -> list[PreparedDocument]:
    """Clean and split a batch of documents; a pure function, so that any number of workers gives the same corpus."""
    return [_prepare(document) for document in batch]


def _prepare(document: SourceDocument) -> PreparedDocument:
    texts = [text for text in map(clean, document.paragraphs) if text]
    paragraphs = tuple(
        PreparedParagraph(duplicate_key(text), len(text), tuple(split_sentences(text))) for text in texts
    )
    key = duplicate_key(" ".join(texts))
    # A document that no source groups is its own group, so that equal texts fall on the same side.
    return PreparedDocument(document.id, document.group or key.hex(), document.split, key, paragraphs)
