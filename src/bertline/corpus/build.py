"""The corpus stage: read, clean, de-duplicate, split sentences, split train and validation, write shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bertline.corpus.config import CorpusConfig, PythonDocsConfig, PythonDocsCorpusConfig
from bertline.corpus.document import Document, SourceDocument, Split
from bertline.corpus.preparation import PreparedDocument, prepare_documents
from bertline.corpus.python_docs import package_versions
from bertline.corpus.sources import read_source
from bertline.corpus.storage import FORMAT_VERSION, KIND, ShardWriter
from bertline.foundation.errors import DataError
from bertline.foundation.files import folder_written_atomically, size_of_path
from bertline.foundation.manifests import versions_of, write_manifest
from bertline.foundation.parallel import ordered_map
from bertline.foundation.progress import progress
from bertline.foundation.seeds import unit_interval

_BATCH_CHARACTERS = 500_000
_BATCH_DOCUMENTS = 1_000
_SPLITS: tuple[Split, ...] = ("train", "validation")


def build_corpus(
    config: CorpusConfig, python_docs: PythonDocsConfig, out: Path, *, num_workers: int
) -> dict[str, float | int]:
    """Write the corpus of the configured source to `out`.

    The result is byte-identical for the same input, configuration and versions, with any number of workers. Memory is
    bounded by a few batches, one row group and a 12-byte key for each distinct document or paragraph.

    Returns:
        Headline figures: documents, sentences, characters and words of each split, dropped documents, duplicates.

    Raises:
        DataError: The input cannot be read, or nothing is left of it.
    """
    dropped: Counter[str] = Counter()
    counts: dict[Split, Counter[str]] = {split: Counter() for split in _SPLITS}
    with folder_written_atomically(out) as folder:
        writers = {split: ShardWriter(folder, split, config.shard_documents) for split in _SPLITS}
        source = read_source(config, python_docs, num_workers=num_workers, dropped=dropped)
        prepared = ordered_map(prepare_documents, _batches(source), num_workers=num_workers)
        documents = progress((item for batch in prepared for item in batch), description="corpus documents")
        for split, document in _kept(documents, config, dropped):
            writers[split].write(document)
            counts[split].update(_sizes(document))
        if not any(counts[split]["documents"] for split in _SPLITS):
            raise DataError(_nothing_left(config, dropped))
        shards = {split: writers[split].close() for split in _SPLITS}
        content: dict[str, Any] = {
            "source": config.kind,
            "counts": {split: dict(counts[split]) for split in _SPLITS},
            "dropped": dict(dropped),
            "shards": shards,
            "bytes": size_of_path(folder),
            "versions": versions_of("pyarrow"),
        }
        if isinstance(config, PythonDocsCorpusConfig):
            content["packages"] = package_versions(python_docs)
        write_manifest(folder, kind=KIND, format_version=FORMAT_VERSION, content=content)
    return _headline(counts, dropped)


def _batches(documents: Iterable[SourceDocument]) -> Iterator[list[SourceDocument]]:
    """Batches by size, cut by the input alone so that the number of workers changes nothing."""
    batch: list[SourceDocument] = []
    characters = 0
    for document in documents:
        batch.append(document)
        characters += sum(map(len, document.paragraphs))
        if characters >= _BATCH_CHARACTERS or len(batch) >= _BATCH_DOCUMENTS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _kept(
    documents: Iterable[PreparedDocument], config: CorpusConfig, dropped: Counter[str]
) -> Iterator[tuple[Split, Document]]:
    """Drop duplicates and short documents, and choose the side of the split."""
    seen: set[bytes] = set()
    for document in documents:
        paragraphs = document.paragraphs
        if not paragraphs:
            dropped["documents/empty"] += 1
            continue
        if config.deduplicate == "document":
            if document.key in seen:
                dropped["documents/duplicate"] += 1
                continue
            seen.add(document.key)
        elif config.deduplicate == "paragraph":
            unique = []
            for paragraph in paragraphs:
                if paragraph.key not in seen:
                    seen.add(paragraph.key)
                    unique.append(paragraph)
            dropped["paragraphs/duplicate"] += len(paragraphs) - len(unique)
            paragraphs = tuple(unique)
            if not paragraphs:
                dropped["documents/duplicate"] += 1
                continue
        if sum(paragraph.characters for paragraph in paragraphs) < config.min_document_characters:
            dropped["documents/too_short"] += 1
            continue
        sentences = tuple(sentence for paragraph in paragraphs for sentence in paragraph.sentences)
        yield _split_of(document, config), Document(document.id, document.group, sentences)


def _split_of(document: PreparedDocument, config: CorpusConfig) -> Split:
    if document.split is not None:
        return document.split
    position = unit_interval(config.split_seed, "validation", document.group)
    return "validation" if position < config.validation_fraction else "train"


def _sizes(document: Document) -> dict[str, int]:
    return {
        "documents": 1,
        "sentences": len(document.sentences),
        "characters": sum(map(len, document.sentences)),
        "words": sum(len(sentence.split()) for sentence in document.sentences),
    }


def _headline(counts: dict[Split, Counter[str]], dropped: Counter[str]) -> dict[str, float | int]:
    headline: dict[str, float | int] = {
        f"{split}/{name}": counts[split][name]
        for split in _SPLITS
        for name in ("documents", "sentences", "characters", "words")
    }
    headline["dropped_documents"] = sum(n for reason, n in dropped.items() if reason.startswith("documents/"))
    headline["duplicate_documents"] = dropped["documents/duplicate"]
    headline["duplicate_paragraphs"] = dropped["paragraphs/duplicate"]
    return headline


def _nothing_left(config: CorpusConfig, dropped: Counter[str]) -> str:
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(dropped.items()) if count)
    return f"The corpus ({config.kind}) is empty: no document is left. Dropped: {reasons or 'nothing was read at all'}."
