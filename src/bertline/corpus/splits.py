"""Which documents are for train and which for validation, and what a split with too few of them gets of the other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

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
_NEAREST = 16


def split_position(group: str, seed: int) -> float:
    """Return the hash of a group as a number in [0, 1); groups below `validation_fraction` are for validation."""
    return unit_interval(seed, "validation", group)


def split_of(document: PreparedDocument, config: CorpusSettings, moved: frozenset[str] = frozenset()) -> Split:
    """Return the split of a document: that of the source if given, else by a hash of its group, if it is not moved."""
    if document.split is not None:
        return document.split
    is_below = split_position(document.group, config.split_seed) < config.validation_fraction
    return "validation" if is_below != (document.group in moved) else "train"


def nearest_first(groups: Iterable[str], split: Split, seed: int) -> list[str]:
    """Return the groups of a split that are nearest to the other one, a few of them."""
    key = {name: (split_position(name, seed), name) for name in groups}
    return sorted(key, key=key.__getitem__, reverse=split == "validation")[:_NEAREST]


def groups_to_move(
    config: CorpusSettings, counts: Mapping[Split, int], groups: Mapping[str, tuple[int, str]], fixes: Iterable[str]
) -> frozenset[str]:
    """Return the groups that the split with too few documents gets of the other one, nearest first.

    Args:
        config: The corpus.
        counts: Number of documents of each split, without copies.
        groups: The nearest groups of the larger split, with their numbers of documents and the id of the first one.
        fixes: What makes more groups of the same text.

    Raises:
        DataError: There is only one group, and so nothing for the other split.
    """
    few, full = sorted(SPLITS, key=counts.__getitem__)
    here, there = counts[few], counts[full]
    # A document without a group has a hash for one, which nobody knows.
    names = {group: first if _HASH.fullmatch(group) else group for group, (_, first) in groups.items()}
    if here == 0 and len(groups) == 1:
        raise DataError(
            f"The corpus cannot be split into train and validation: all text is in one group "
            f"({next(iter(names.values()))!r}). {', or '.join(['Give more text', *fixes])}."
        )
    shortage = f"{here} document{'s' * (here != 1)} fell into {few}"
    asked = f"corpus.validation_fraction is {config.validation_fraction}, sentence pairs need {FEWEST_DOCUMENTS}"
    moved: list[str] = []
    # Groups that hold most of the documents only where there is nothing else for an empty split.
    nearest = nearest_first(groups, full, config.split_seed)
    for group in sorted(nearest, key=lambda name: groups[name][0] > there / 2):
        number = groups[group][0]
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
