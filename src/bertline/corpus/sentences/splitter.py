"""What a way of splitting text into sentences has to provide."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from bertline.corpus.document import SourceDocument

Batches = Callable[[], Iterable[list[SourceDocument]]]
"""Reads the corpus from its beginning, in batches that do not depend on the number of workers."""


class Splitter(Protocol):
    """Splits paragraphs; it is pickled for the worker processes and must be a pure function of the paragraph."""

    @property
    def keeps_lines(self) -> bool:
        """Whether the line breaks of the source matter."""

    def split(self, paragraph: str) -> list[str]:
        r"""Split one paragraph into sentences.

        Args:
            paragraph: Cleaned text, on one line; with `keeps_lines`, the cleaned lines of the source with `\n` between.

        Returns:
            The sentences in order, none empty, each on one line.
        """

    def learned(self) -> dict[str, Any]:
        """Return what was learned from the corpus, for the manifest; empty if nothing is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SentenceSettings(ABC):
    """Settings of every kind of sentence splitting.

    A kind is one file of `corpus/sentences`, which `corpus/sentences/registry.py` lists in `SentencesConfig`.
    """

    headings: Literal["stay", "joined", "dropped"]
    """Headings (`is_heading`): sentences of their own, the beginning of the next one, or left out and counted."""

    @abstractmethod
    def splitter(self, read: Batches, *, num_workers: int) -> Splitter:
        """Make the splitter, for which a kind that learns reads the corpus once more.

        Args:
            read: Reads the corpus from its beginning.
            num_workers: Number of processes; it must not affect the result.
        """
