"""The shards of a corpus while it is written, with counts of what is in them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from bertline.corpus.document import Document, Split
from bertline.corpus.labels import Copies, label_of
from bertline.corpus.quality.word_hashes import is_stub
from bertline.corpus.registry import CorpusConfig, SourcesCorpusConfig
from bertline.corpus.storage import ShardWriter, read_shard

SPLITS: tuple[Split, ...] = ("train", "validation")


class Written:
    """Shard writers of both splits, with counts of the documents written."""

    def __init__(self, folder: Path, config: CorpusConfig) -> None:
        self.counts: dict[Split, Counter[str]] = {split: Counter() for split in SPLITS}
        self.shards: dict[Split, list[str]] = {split: [] for split in SPLITS}
        self.stubs: Counter[str] = Counter()
        self.by_label: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """Counts by source and language, in a corpus of several sources."""
        self.copies: Counter[Split] = Counter()
        """Documents that are copies of another one, which are there because their source has a weight."""
        self._folder = folder
        self._several = isinstance(config, SourcesCorpusConfig)
        self._copies = Copies()
        self._writers = {split: ShardWriter(folder, split, config.shard_documents) for split in SPLITS}

    def add(self, document: Document, split: Split, *, words: int) -> None:
        """Write a document; its copies come right behind it."""
        self._writers[split].write(document)
        characters = sum(map(len, document.sentences))
        sizes = {"documents": 1, "sentences": len(document.sentences), "characters": characters, "words": words}
        self.counts[split].update(sizes)
        if self._several:
            self.copies[split] += self._copies.is_copy(document.id)
            self.by_label[label_of(document.id)].update({f"{split}/{name}": size for name, size in sizes.items()})
        self.stubs.update(filter(is_stub, document.sentences))

    def documents(self) -> Iterator[tuple[Split, Document]]:
        """Read all documents again, after `close`."""
        for split in SPLITS:
            for name in self.shards[split]:
                for document in read_shard(self._folder / name):
                    yield split, document

    def num_different(self, split: Split) -> int:
        """Return the number of documents of a split, each counted once however often it is there."""
        return self.counts[split]["documents"] - self.copies[split]

    def close(self) -> None:
        """Finish all shards."""
        self.shards = {split: self._writers[split].close() for split in SPLITS}
