"""Corpora from documents that a test spells out, and what the stage makes of a configuration."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bertline.corpus import storage
from bertline.corpus.build import build_corpus
from bertline.corpus.document import Document
from bertline.corpus.quality.drops import DROPS_NAME
from bertline.corpus.storage import FORMAT_VERSION, KIND
from bertline.demo.config import PackageConfig, PythonDocsConfig
from bertline.foundation.engine import LocalEngine
from bertline.foundation.files import read_json
from bertline.foundation.manifests import read_manifest, write_manifest


def build(config: Any, out: Path, num_workers: int = 0) -> dict[str, Any]:
    """Build a corpus that needs no packages; return the headline."""
    return build_corpus(config, NO_PACKAGES, out, **local(out, num_workers))


def manifest_of(out: Path) -> dict[str, Any]:
    """Return the manifest of a corpus."""
    return read_manifest(out, kind=KIND, format_version=FORMAT_VERSION)


def drops_of(out: Path) -> dict[str, Any]:
    """Return counts and samples of what was left out of a corpus."""
    return dict(read_json(out / DROPS_NAME))


def write_corpus(
    folder: Path,
    train: Iterable[Document | Sequence[str]],
    validation: Iterable[Document | Sequence[str]],
    *,
    shard_documents: int = 25,
    **content: Any,
) -> Path:
    """Write a corpus of documents, or lists of sentences, with more `content` of its manifest; return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    shards, counts = {}, {}
    for split, given in (("train", train), ("validation", validation)):
        documents = [
            each if isinstance(each, Document) else Document(f"{split}-{number}", f"{split}-{number}", tuple(each))
            for number, each in enumerate(given)
        ]
        starts = range(0, len(documents), shard_documents)
        shards[split] = [f"{split}-{number:05d}-of-{len(starts):05d}.parquet" for number in range(len(starts))]
        for name, start in zip(shards[split], starts, strict=True):
            writer = storage.ShardWriter(folder / name)
            for document in documents[start : start + shard_documents]:
                writer.write(document)
            writer.close()
        characters = sum(len(sentence) for document in documents for sentence in document.sentences)
        counts[split] = {"documents": len(documents), "characters": characters} if documents else {}
    content = {"shards": shards, "counts": counts, **content}
    write_manifest(folder, kind=KIND, format_version=FORMAT_VERSION, content=content)
    return folder


WORDS_OF = {
    name: [f"{first}{vowel}{last}" for first in firsts for vowel in "aeiou" for last in "lrst"]
    for name, firsts in (("xx", "bd"), ("yy", "fg"), ("zz", "kl"))
}


def documents_in(labels: list[str]) -> list[Document]:
    """Documents, one for each label, of words that only its language has; every fifth has no tokens at all."""
    rng = random.Random(0)
    made = []
    for number, label in enumerate(labels):
        words = WORDS_OF[label.partition("[")[2][:2]]
        sentences = tuple(" ".join(rng.choices(words, k=rng.randint(2, 8))) for _ in range(rng.randint(2, 6)))
        made.append(Document(f"{label}/{number}", "", ("\x00",) if number % 5 == 4 else sentences))
    return made


NO_PACKAGES = PythonDocsConfig(
    packages=(PackageConfig(module="none", distribution=None),), held_out_fraction=0.5, split_seed=0
)


def local(out: Path, num_workers: int = 0) -> dict[str, Any]:
    """Return the arguments `engine` and `work` of a stage that writes `out`: processes here, a folder next to it."""
    return {"engine": LocalEngine(num_workers), "work": out.with_name(f"{out.name}.work")}
