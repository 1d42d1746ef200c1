"""Which documents are for train and which for validation, and what a split with too few of them gets of the other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from bertline.corpus.document import Split
from bertline.corpus.preparation import PreparedDocument
from bertline.corpus.reader import CorpusReader, CorpusSettings
from bertline.corpus.readers.text import TextReader
from bertline.corpus.readers.xml import XmlReader
from bertline.foundation.errors import DataError
from bertline.foundation.progress import warn
from bertline.foundation.seeds import unit_interval

SPLITS: tuple[Split, Split] = ("train", "validation")
FEWEST_DOCUMENTS = 2
"""Documents of a split from which sentence pairs can be made: a random second segment comes from another document."""
_HASH = re.compile("[0-9a-f]{24}")
_NEAREST, _MOST = 16, 1000


@lru_cache(maxsize=4 * _MOST)
def split_position(group: str, seed: int) -> float:
    """Return the hash of a group as a number in [0, 1); groups below `validation_fraction` are for validation."""
    return unit_interval(seed, "validation", group)


def split_of(document: PreparedDocument, config: CorpusSettings, moved: frozenset[str] = frozenset()) -> Split:
    """Return the split of a document: that of the source if given, else by a hash of its group, if it is not moved."""
    if document.split is not None:
        return document.split
    is_below = split_position(document.group, config.split_seed) < config.validation_fraction
    return "validation" if is_below != (document.group in moved) else "train"


class NearestGroups:
    """The groups of each split that are nearest to the other one, with their numbers of documents."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._groups: dict[Split, dict[str, tuple[int, str]]] = {split: {} for split in SPLITS}

    def add(self, split: Split, group: str, document_id: str, number: int = 1) -> None:
        """Count documents."""
        groups = self._groups[split]
        before, name = groups.get(group, (0, document_id))
        groups[group] = (before + number, name)
        if len(groups) > _MOST:
            self._groups[split] = dict(self._nearest(split))

    def _nearest(self, split: Split) -> list[tuple[str, tuple[int, str]]]:
        key = {name: (split_position(name, self._seed), name) for name in self._groups[split]}
        ordered = sorted(self._groups[split].items(), key=lambda one: key[one[0]], reverse=split == "validation")
        return ordered[:_NEAREST]

    def content(self) -> dict[Split, list[list[Any]]]:
        """Return [group, documents, id of the first one] by split, the nearest first, as plain data."""
        return {split: [[name, *found] for name, found in self._nearest(split)] for split in SPLITS}

    def add_content(self, content: Mapping[Split, Iterable[list[Any]]]) -> None:
        """Add what `content` returned for other documents."""
        for split in SPLITS:
            for group, number, name in content[split]:
                self.add(split, group, name, number)


def groups_to_move(
    config: CorpusSettings, readers: Mapping[str, CorpusReader], counts: Mapping[Split, int], nearest: NearestGroups
) -> frozenset[str]:
    """Return the groups that a split with too few documents gets of the other one, nearest first.

    Args:
        config: The corpus.
        readers: Its readers by their keys in the configuration.
        counts: Number of documents of each split, without copies.
        nearest: The groups of each split.

    Raises:
        DataError: There is only one group, and so nothing for the other split.
    """
    few, full = sorted(SPLITS, key=counts.__getitem__)
    here, there = counts[few], counts[full]
    if config.validation_fraction == 0 or here >= FEWEST_DOCUMENTS:
        return frozenset()
    groups = nearest.content()[full]
    # A document without a group has a hash for one, which nobody knows.
    names = {group: first if _HASH.fullmatch(group) else group for group, _, first in groups}
    if here == 0 and len(groups) == 1:
        key = "corpus" if len(readers) == 1 and "" in readers else "corpus.sources.NAME"
        fixes = dict.fromkeys(fix for reader in readers.values() for fix in more_documents(key, reader))
        raise DataError(
            f"The corpus cannot be split into train and validation: all text is in one group "
            f"({next(iter(names.values()))!r}). {', or '.join(['Give more text', *fixes])}."
        )
    shortage = f"{here} document{'s' * (here != 1)} fell into {few}"
    asked = f"corpus.validation_fraction is {config.validation_fraction}, sentence pairs need {FEWEST_DOCUMENTS}"
    moved: list[str] = []
    # Groups that hold most of the documents only where there is nothing else for an empty split.
    for group, number, _ in sorted(groups, key=lambda one: one[1] > there / 2):
        if here < FEWEST_DOCUMENTS and (here == 0 or there - number >= max(FEWEST_DOCUMENTS, here)):
            moved.append(group)
            here, there = here + number, there - number
    if moved:
        warn(f"{shortage} ({asked}); moved there: {', '.join(repr(names[group]) for group in moved)}.")
    else:
        warn(f"{shortage} ({asked}), and {full} has none to spare. Give more files or smaller documents.")
    return frozenset(moved)


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
