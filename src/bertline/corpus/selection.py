"""Which documents are kept, and which of them are for validation."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator

from bertline.corpus.document import Split
from bertline.corpus.preparation import PreparedDocument, PreparedParagraph
from bertline.corpus.quality.drops import DropSamples
from bertline.corpus.registry import CorpusConfig
from bertline.foundation.seeds import unit_interval


def select_documents(
    documents: Iterable[PreparedDocument],
    config: CorpusConfig,
    dropped: Counter[str],
    samples: DropSamples | None = None,
) -> Iterator[PreparedDocument]:
    """Drop empty, duplicate and short documents, counted by reason; the first duplicate in reading order is kept.

    With `deduplicate: paragraph`, paragraphs that occurred before are removed, regardless of the split, so that no
    validation paragraph occurs in train.
    """
    seen: set[bytes] = set()
    samples = DropSamples() if samples is None else samples
    for document in documents:
        for heading in document.dropped_headings:
            dropped["paragraphs/heading"] += 1
            samples.add("paragraphs/heading", document.id, heading)
        if not document.paragraphs:
            dropped["documents/empty"] += 1
            samples.add("documents/empty", document.id, "")
            continue
        if config.deduplicate == "document":
            paragraphs = () if document.key in seen else document.paragraphs
            seen.add(document.key)
        elif config.deduplicate == "paragraph":
            paragraphs = tuple(_first_seen(document.paragraphs, seen))
            dropped["paragraphs/duplicate"] += len(document.paragraphs) - len(paragraphs)
            kept = set(map(id, paragraphs))
            for paragraph in document.paragraphs:
                if id(paragraph) not in kept:
                    samples.add("paragraphs/duplicate", document.id, " ".join(paragraph.sentences))
        else:
            paragraphs = document.paragraphs
        if not paragraphs:
            dropped["documents/duplicate"] += 1
            samples.add("documents/duplicate", document.id, " ".join(document.sentences))
        elif sum(paragraph.characters for paragraph in paragraphs) < config.min_document_characters:
            dropped["documents/too_short"] += 1
            samples.add("documents/too_short", document.id, " ".join(document.sentences))
        else:
            yield dataclasses.replace(document, paragraphs=paragraphs)


def split_position(group: str, seed: int) -> float:
    """Return the hash of a group as a number in [0, 1); groups below `validation_fraction` are for validation."""
    return unit_interval(seed, "validation", group)


def split_of(document: PreparedDocument, config: CorpusConfig) -> Split:
    """Return the split of a document: that of the source if given, else by a hash of its group."""
    if document.split is not None:
        return document.split
    position = split_position(document.group, config.split_seed)
    return "validation" if position < config.validation_fraction else "train"


def _first_seen(paragraphs: Iterable[PreparedParagraph], seen: set[bytes]) -> Iterator[PreparedParagraph]:
    for paragraph in paragraphs:
        if paragraph.key not in seen:
            seen.add(paragraph.key)
            yield paragraph
