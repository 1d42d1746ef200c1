"""The shards of a corpus while it is written, with counts; a split with too few documents gets some of the other's."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from bertline.corpus.document import Copies, Document, Split, label_of
from bertline.corpus.preparation import split_position
from bertline.corpus.quality.word_hashes import is_stub
from bertline.corpus.reader import CorpusReader
from bertline.corpus.readers.text import TextReader
from bertline.corpus.readers.xml import XmlReader
from bertline.corpus.registry import CorpusConfig, SourcesCorpusConfig, readers_of
from bertline.corpus.storage import ShardWriter, read_shard
from bertline.foundation.errors import DataError
from bertline.foundation.progress import warn

SPLITS: tuple[Split, ...] = ("train", "validation")


class CorpusWriter:
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


# A corpus with too few documents in one of its splits.

_HASH = re.compile("[0-9a-f]{24}")
FEWEST_DOCUMENTS = 2
"""Documents of a split from which sentence pairs can be made: a random second segment comes from another document."""


def with_both_splits(folder: Path, config: CorpusConfig, writer: CorpusWriter) -> CorpusWriter:
    """Rewrite a small corpus with too few documents in one split, with the nearest groups of the other one moved there.

    Documents are counted once, however often they are there; copies are left behind where a group goes to validation.

    Returns:
        What is there now.

    Raises:
        DataError: There is only one group, and so nothing for the other split.
    """
    few, full = sorted(SPLITS, key=writer.num_different)
    groups: Counter[str] = Counter()
    names: dict[str, str] = {}
    for split, document, is_copy in _documents(folder, writer):
        if split == full and not is_copy:
            groups[document.group] += 1
            # A document without a group has a hash for one, which nobody knows.
            names.setdefault(document.group, document.id if _HASH.fullmatch(document.group) else document.group)
    here, there = writer.num_different(few), writer.num_different(full)
    if here == 0 and len(groups) == 1:
        raise DataError(
            f"The corpus ({config.kind}) cannot be split into train and validation: all text is in one group "
            f"({next(iter(names.values()))!r}). {', or '.join(['Give more text', *_fixes(config)])}."
        )
    shortage = f"{here} document{'s' * (here != 1)} fell into {few}"
    moved: list[str] = []
    nearest = sorted(groups, key=lambda name: (split_position(name, config.split_seed), name), reverse=few == "train")
    # Groups that hold most of the documents only where there is nothing else for an empty split.
    for group in sorted(nearest, key=lambda name: groups[name] > there / 2):
        if here < FEWEST_DOCUMENTS and (here == 0 or there - groups[group] >= max(FEWEST_DOCUMENTS, here)):
            moved.append(group)
            here, there = here + groups[group], there - groups[group]
    asked = f"corpus.validation_fraction is {config.validation_fraction}, sentence pairs need {FEWEST_DOCUMENTS}"
    if not moved:
        warn(f"{shortage} ({asked}), and {full} has none to spare. Give more files or smaller documents.")
        return writer
    warn(f"{shortage} ({asked}); moved there: {', '.join(repr(names[group]) for group in moved)}.")
    again = CorpusWriter(folder, config)
    before = [folder / name for split in SPLITS for name in writer.shards[split]]
    for split, document, is_copy in _documents(folder, writer):
        target = few if document.group in moved else split
        if target == "train" or not is_copy:
            again.add(document, target, words=sum(len(sentence.split()) for sentence in document.sentences))
    for path in before:
        path.unlink()
    again.close()
    return again


def _documents(folder: Path, writer: CorpusWriter) -> Iterator[tuple[Split, Document, bool]]:
    """Read all documents again, those of the smaller split first, each with whether it is a copy."""
    copies = Copies()
    for split in sorted(SPLITS, key=writer.num_different):
        for name in writer.shards[split]:
            for document in read_shard(folder / name):
                yield split, document, writer.copies[split] > 0 and copies.is_copy(document.id)


def _fixes(config: CorpusConfig) -> dict[str, None]:
    readers = dict(readers_of(config))
    keys = {key: key if len(readers) == 1 else "corpus.sources.NAME" for key in readers}
    return dict.fromkeys(fix for key, reader in readers.items() for fix in more_documents(keys[key], reader))


def more_documents(key: str, reader: CorpusReader) -> Iterator[str]:
    """Yield what makes more documents, or groups, of the same text."""
    group_column = getattr(reader, "group_column", None)
    if isinstance(reader, TextReader) and reader.document != "line":
        kinds = [kind for kind in ("blank_line", "line") if kind != reader.document]
        yield (
            f"say where a document begins: {key}.document={' or '.join(kinds)}, or regex with {key}.document_start "
            f"(now {reader.document})"
        )
    elif isinstance(reader, XmlReader):
        yield f"name a smaller element in {key}.document (now {reader.document})"
    elif group_column is not None:
        yield f"set {key}.group_column=null (now {group_column}), so that rows of one group may be in both splits"
