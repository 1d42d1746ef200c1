"""The corpus readers: a new one is a file of `corpus/readers` and a line in each of the two unions here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from bertline.corpus.reader import CorpusReader, CorpusSettings
from bertline.corpus.readers.table import HubCorpusConfig, HubSource, TableCorpusConfig, TableSource
from bertline.corpus.readers.text import TextCorpusConfig, TextSource
from bertline.corpus.readers.wikiextractor import WikiExtractorCorpusConfig, WikiExtractorSource
from bertline.corpus.readers.xml import XmlCorpusConfig, XmlSource
from bertline.demo.reader import PythonDocsCorpusConfig

_SOURCE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")

SourceConfig = TextSource | WikiExtractorSource | XmlSource | TableSource | HubSource


@dataclass(frozen=True, kw_only=True)
class SourcesCorpusConfig(CorpusSettings):
    """Several sources at once, each with a reader of its own."""

    kind: Literal["sources"]
    sources: dict[str, SourceConfig]
    """The sources by name. They are read in the order of their names."""
    language_exponent: float | None
    """Languages are read in proportion to their size to the power of this, in (0, 1]; null leaves them as they are."""
    sampling_seed: int
    """Seed of the hashes that choose the documents of a source or language that is not read as a whole."""

    def check(self) -> None:
        """Raise ValueError for a name that cannot be a folder, and for sources without language where it matters."""
        for name in self.sources:
            if not _SOURCE_NAME.fullmatch(name):
                raise ValueError(
                    f"sources has the name {name!r}, which cannot be a folder and a DVC stage; use letters, digits, "
                    "'_' and '-'"
                )
        if not self.sources:
            raise ValueError(
                "sources is empty; add one with +source@corpus.sources.NAME=text corpus.sources.NAME.path=/path/to/it"
            )
        if self.language_exponent is None:
            return
        if not 0 < self.language_exponent <= 1:
            raise ValueError(f"language_exponent must be in (0, 1], or null; found {self.language_exponent}")
        without = [
            name
            for name, source in self.sources.items()
            if source.language is None and getattr(source, "language_column", None) is None
        ]
        if without:
            raise ValueError(
                f"language_exponent is {self.language_exponent}, but no language is given for {', '.join(without)}: "
                "set language, or language_column where rows have one"
            )


CorpusConfig = (
    PythonDocsCorpusConfig
    | TextCorpusConfig
    | WikiExtractorCorpusConfig
    | XmlCorpusConfig
    | TableCorpusConfig
    | HubCorpusConfig
    | SourcesCorpusConfig
)


@dataclass(frozen=True, kw_only=True, slots=True)
class NoCorpusConfig:
    """No corpus: an existing checkpoint is fine-tuned (`experiment=finetune`)."""

    kind: Literal["none"]


def readers_of(corpus: CorpusConfig | NoCorpusConfig) -> Iterator[tuple[str, CorpusReader]]:
    """Yield the readers of a corpus, each with its key in the configuration: `corpus`, or `corpus.sources.NAME`."""
    if isinstance(corpus, SourcesCorpusConfig):
        for name, source in corpus.sources.items():
            yield f"corpus.sources.{name}", source
    elif isinstance(corpus, CorpusReader):
        yield "corpus", corpus
