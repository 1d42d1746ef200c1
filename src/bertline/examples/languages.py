"""Languages and copies of documents: a random second segment has the language of the first, and is of another text."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bertline.corpus.document import Copies, label_of, language_of
from bertline.examples.store import Array

_COPIES = "copies.npy"


@dataclass(frozen=True, slots=True)
class LanguageIndex:
    """The documents of each language, with access to any other one of the same language in constant time."""

    order: Array
    """[documents] int64 indices of the documents, those of a language together."""
    places: Array
    """[documents] int64 place of each document in `order`."""
    languages: Array
    """[documents] int64 number of each document's language."""
    starts: Array
    """[languages + 1] int64 place in `order` where each language begins."""

    @classmethod
    def of(cls, languages: Sequence[int] | npt.NDArray[np.int64]) -> LanguageIndex:
        """Make the index from the number of each document's language.

        Example:
            >>> index = LanguageIndex.of([0, 1, 0, 0])
            >>> index.num_others(0), [index.other(2, number) for number in range(2)], index.num_others(1)
            (2, [0, 3], 0)
        """
        numbers = np.asarray(languages, dtype=np.int64)
        order = np.argsort(numbers, kind="stable")
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        return cls(order, places, numbers, np.concatenate([[0], np.cumsum(np.bincount(numbers))]).astype(np.int64))

    @classmethod
    def open(cls, folder: Path) -> LanguageIndex | None:
        """Memory-map the files that `write` wrote; None if there are none."""
        paths = [folder / f"language_{field.name}.npy" for field in fields(cls)]
        if not paths[0].exists():
            return None
        return cls(*(np.asarray(np.load(path, mmap_mode="r")) for path in paths))

    def write(self, folder: Path) -> None:
        """Write each array to a file."""
        for field in fields(self):
            np.save(folder / f"language_{field.name}.npy", getattr(self, field.name))

    def num_others(self, document: int, *, copies: int = 1) -> int:
        """Return how many other documents have the language of this one, the first of some copies."""
        language = self.languages[document]
        return int(self.starts[language + 1] - self.starts[language]) - copies

    def other(self, document: int, number: int, *, copies: int = 1) -> int:
        """Return another document of the same language, by a number below `num_others`."""
        place = int(self.starts[self.languages[document]]) + number
        return int(self.order[place + copies * (place >= self.places[document])])


class SourcesOfDocuments:
    """Languages and copies of documents as they are read, by their ids in a corpus of several sources.

    Ids begin with labels and, of copies, end with a number. A document without language has that of its source alone.
    """

    def __init__(self) -> None:
        self._copies = Copies()
        self._firsts = array("q")
        self._numbers: dict[tuple[str | None, str], int] = {}
        self._of_documents = array("q")
        self._kept: list[npt.NDArray[np.bool_]] = []

    def add(self, document_id: str) -> None:
        """Add a document."""
        label = label_of(document_id)
        language = language_of(label)
        key = (language, "" if language is not None else label)
        self._of_documents.append(self._numbers.setdefault(key, len(self._numbers)))
        is_copy = self._copies.is_copy(document_id)
        self._firsts.append(self._firsts[-1] if is_copy else len(self._firsts))

    def keep(self, kept: npt.NDArray[np.bool_]) -> None:
        """Say which of the next documents, in their order, are in the encoded corpus."""
        self._kept.append(kept)

    def write(self, folder: Path) -> int:
        """Write the index of the kept documents, if they have several languages, and which are copies, if any are.

        Returns:
            The number of kept documents that are copies of another one.
        """
        if not self._kept:
            return 0
        kept = np.concatenate(self._kept)
        if len({language for language, _ in self._numbers if language is not None}) > 1:
            languages = np.frombuffer(self._of_documents, dtype=np.int64)
            LanguageIndex.of(languages[kept]).write(folder)
        ranges = copy_ranges(np.frombuffer(self._firsts, dtype=np.int64)[kept])
        copies = len(ranges) - len(np.unique(ranges[:, 0]))
        if copies:
            np.save(folder / _COPIES, ranges)
        return copies


def copy_ranges(firsts: npt.NDArray[np.int64]) -> Array:
    """Return [documents, 2] where the copies of each document begin and end, itself among them.

    Args:
        firsts: [documents] a number for each document, equal for copies, which lie next to each other.

    Example:
        >>> copy_ranges(np.array([0, 0, 2, 5])).tolist()
        [[0, 2], [0, 2], [2, 3], [3, 4]]
    """
    begins = np.flatnonzero(np.diff(firsts, prepend=-1))
    sizes = np.diff(begins, append=len(firsts))
    return np.repeat(np.stack([begins, begins + sizes], axis=1), sizes, axis=0)


def open_copies(folder: Path) -> Array | None:
    """Memory-map what `SourcesOfDocuments` wrote of copies; None if there are none."""
    path = folder / _COPIES
    return np.asarray(np.load(path, mmap_mode="r")) if path.exists() else None
