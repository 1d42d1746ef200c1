"""A corpus with too few documents in one of its splits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bertline.corpus.document import Document, Split
from bertline.corpus.labels import Copies
from bertline.corpus.reader import CorpusReader
from bertline.corpus.readers.text import TextReader
from bertline.corpus.readers.xml import XmlReader
from bertline.corpus.registry import CorpusConfig, readers_of
from bertline.corpus.selection import split_position
from bertline.corpus.storage import read_shard
from bertline.corpus.written import SPLITS, Written
from bertline.foundation.errors import DataError
from bertline.foundation.progress import warn

_HASH = re.compile("[0-9a-f]{24}")
FEWEST_DOCUMENTS = 2
"""Documents of a split from which sentence pairs can be made: a random second segment comes from another document."""


def with_both_splits(folder: Path, config: CorpusConfig, written: Written) -> Written:
    """Rewrite a small corpus with too few documents in one split, with the nearest groups of the other one moved there.

    Documents are counted once, however often they are there; copies are left behind where a group goes to validation.

    Args:
        folder: Where the corpus was written.
        config: The corpus.
        written: What was written.

    Returns:
        What is there now.

    Raises:
        DataError: There is only one group, and so nothing for the other split.
    """
    few, full = sorted(SPLITS, key=written.num_different)
    groups: Counter[str] = Counter()
    names: dict[str, str] = {}
    for split, document, is_copy in _documents(folder, written):
        if split == full and not is_copy:
            groups[document.group] += 1
            # A document without a group has a hash for one, which nobody knows.
            names.setdefault(document.group, document.id if _HASH.fullmatch(document.group) else document.group)
    here, there = written.num_different(few), written.num_different(full)
    if here == 0 and len(groups) == 1:
        raise DataError(
            f"The corpus ({config.kind}) cannot be split into train and validation: all text is in one group "
            f"({next(iter(names.values()))!r}). {', or '.join(['Give more text', *_fixes(config)])}."
        )
    found = f"{here} document{'s' * (here != 1)} fell into {few}"
    moved: list[str] = []
    nearest = sorted(groups, key=lambda name: (split_position(name, config.split_seed), name), reverse=few == "train")
    # Groups that hold most of the documents only where there is nothing else for an empty split.
    for group in sorted(nearest, key=lambda name: groups[name] > there / 2):
        if here < FEWEST_DOCUMENTS and (here == 0 or there - groups[group] >= max(FEWEST_DOCUMENTS, here)):
            moved.append(group)
            here, there = here + groups[group], there - groups[group]
    asked = f"corpus.validation_fraction is {config.validation_fraction}, sentence pairs need {FEWEST_DOCUMENTS}"
    if not moved:
        warn(f"{found} ({asked}), and {full} has none to spare. Give more files or smaller documents.")
        return written
    warn(f"{found} ({asked}); moved there: {', '.join(repr(names[group]) for group in moved)}.")
    again = Written(folder, config)
    before = [folder / name for split in SPLITS for name in written.shards[split]]
    for split, document, is_copy in _documents(folder, written):
        target = few if document.group in moved else split
        if target == "train" or not is_copy:
            again.add(document, target, words=sum(len(sentence.split()) for sentence in document.sentences))
    for path in before:
        path.unlink()
    again.close()
    return again


def _documents(folder: Path, written: Written) -> Iterator[tuple[Split, Document, bool]]:
    """Read all documents again, those of the smaller split first, each with whether it is a copy."""
    copies = Copies()
    for split in sorted(SPLITS, key=written.num_different):
        for name in written.shards[split]:
            for document in read_shard(folder / name):
                yield split, document, written.copies[split] > 0 and copies.is_copy(document.id)


def _fixes(config: CorpusConfig) -> dict[str, None]:
    readers = dict(readers_of(config))
    keys = {key: key if len(readers) == 1 else "corpus.sources.NAME" for key in readers}
    return dict.fromkeys(fix for key, reader in readers.items() for fix in more_documents(keys[key], reader))


def more_documents(key: str, reader: CorpusReader) -> Iterator[str]:
    """Yield what makes more documents, or groups, of the same text.

    Args:
        key: Where the reader is configured, such as `corpus`.
        reader: The reader.
    """
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
