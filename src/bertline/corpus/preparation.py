"""Preparation of documents in worker processes: clean, compute duplicate keys, split sentences, count."""

from __future__ import annotations

from dataclasses import dataclass

from bertline.corpus.cleaning import clean, duplicate_key
from bertline.corpus.document import SourceDocument, Split
from bertline.corpus.sentences import split_sentences


@dataclass(frozen=True, slots=True)
class PreparedParagraph:
    """One cleaned block of text."""

    key: bytes
    """Duplicate key, equal for blocks that differ only in case and white space."""
    sentences: tuple[str, ...]
    characters: int
    """Total length of the sentences."""
    words: int


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A cleaned document."""

    id: str
    group: str
    split: Split | None
    key: bytes
    """Duplicate key, equal for documents that differ only in case and white space."""
    paragraphs: tuple[PreparedParagraph, ...]

    @property
    def sentences(self) -> tuple[str, ...]:
        return tuple(sentence for paragraph in self.paragraphs for sentence in paragraph.sentences)


def prepare_documents(batch: list[SourceDocument]) -> list[PreparedDocument]:
    """Clean a batch of documents and split it into sentences.

    This is a pure function, so the corpus does not depend on the number of workers.
    """
    return [_prepare(document) for document in batch]


def _prepare(document: SourceDocument) -> PreparedDocument:
    texts = [text for text in map(clean, document.paragraphs) if text]
    key = duplicate_key(" ".join(texts))
    paragraphs = tuple(map(_paragraph, texts))
    # Without a group from the source, the key is the group, so that equal texts are in the same split.
    return PreparedDocument(clean(document.id), clean(document.group) or key.hex(), document.split, key, paragraphs)


def _paragraph(text: str) -> PreparedParagraph:
    sentences = tuple(split_sentences(text))
    return PreparedParagraph(duplicate_key(text), sentences, sum(map(len, sentences)), len(text.split()))
