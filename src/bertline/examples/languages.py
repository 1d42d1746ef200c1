"""Languages of the documents, so that a random second segment does not give itself away by its language."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bertline.corpus.labels import label_of, language_of
from bertline.examples.store import Array


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

    def num_others(self, document: int) -> int:
        """Return how many other documents have the language of this one."""
        language = self.languages[document]
        return int(self.starts[language + 1] - self.starts[language]) - 1

    def other(self, document: int, number: int) -> int:
        """Return another document of the same language, by a number below `num_others`."""
        place = int(self.starts[self.languages[document]]) + number
        return int(self.order[place + (place >= self.places[document])])


class LanguagesOfDocuments:
    """Languages of the documents as they are read, by the labels that the ids of several sources begin with.

    A document without language has that of its source alone.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[str | None, str], int] = {}
        self._of_documents = array("q")
        self._kept: list[npt.NDArray[np.bool_]] = []

    def add(self, document_id: str) -> None:
        """Add a document."""
        label = label_of(document_id)
        language = language_of(label)
        key = (language, "" if language is not None else label)
        self._of_documents.append(self._numbers.setdefault(key, len(self._numbers)))

    def keep(self, kept: npt.NDArray[np.bool_]) -> None:
        """Say which of the next documents, in their order, are in the encoded corpus."""
        self._kept.append(kept)

    def write(self, folder: Path) -> None:
        """Write the index of the kept documents, if they have several languages."""
        if len({language for language, _ in self._numbers if language is not None}) > 1:
            languages = np.frombuffer(self._of_documents, dtype=np.int64)
            LanguageIndex.of(languages[np.concatenate(self._kept)]).write(folder)
