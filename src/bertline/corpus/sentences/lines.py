"""Text that is split already: one sentence a line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from bertline.corpus.sentences.splitter import Batches, SentenceSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class LinesConfig(SentenceSettings):
    """Each line is a sentence: for text that another program has split."""

    kind: Literal["lines"]

    def splitter(self, read: Batches, *, num_workers: int) -> LineSplitter:
        """Return the splitter; the corpus is not read."""
        return LineSplitter()


@dataclass(frozen=True, slots=True)
class LineSplitter:
    """Splits at line breaks."""

    keeps_lines: ClassVar[bool] = True

    def split(self, paragraph: str) -> list[str]:
        r"""Return the lines.

        Example:
            >>> LineSplitter().split("It rained. Dr.\nSmith stayed.")
            ['It rained. Dr.', 'Smith stayed.']
        """
        return paragraph.split("\n")

    def learned(self) -> dict[str, Any]:
        """Return nothing: no text is read in advance."""
        return {}
