"""A corpus artifact from a few lines of text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bertline.corpus.document import Document
from bertline.corpus.storage import FORMAT_VERSION, KIND
from bertline.foundation.manifests import write_manifest
from corpora import ShardWriter

WriteCorpus = Callable[[Sequence[Sequence[str]], Sequence[Sequence[str]]], Path]


@pytest.fixture
def write_corpus(tmp_path: Path) -> WriteCorpus:
    """`write_corpus(train, validation)`, each a list of documents, each a list of sentences; returns the folder."""

    def write(train: Sequence[Sequence[str]], validation: Sequence[Sequence[str]]) -> Path:
        folder = tmp_path / "corpus"
        folder.mkdir()
        shards, counts = {}, {}
        for split, documents in (("train", train), ("validation", validation)):
            writer = ShardWriter(folder, split, shard_documents=50)
            for index, sentences in enumerate(documents):
                writer.write(Document(f"{split}-{index}", f"{split}-{index}", tuple(sentences)))
            shards[split] = writer.close()
            characters = sum(len(sentence) for sentences in documents for sentence in sentences)
            counts[split] = {"documents": len(documents), "characters": characters} if documents else {}
        write_manifest(folder, kind=KIND, format_version=FORMAT_VERSION, content={"shards": shards, "counts": counts})
        return folder

    return write
