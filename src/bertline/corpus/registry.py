"""The corpus readers: a new one is a file of `corpus/readers` and a line here, or an entry point of a package."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Union

from bertline.corpus.reader import CorpusReader, CorpusSettings, SourceSettings
from bertline.corpus.readers.table import HubReader, TableReader
from bertline.corpus.readers.text import TextReader
from bertline.corpus.readers.wikiextractor import WikiExtractorReader
from bertline.corpus.readers.xml import XmlReader
from bertline.demo.config import PythonDocsConfig
from bertline.demo.docstrings import ModulesReader, PythonDocsCorpusConfig
from bertline.foundation.checked import PositiveFraction, UserData, names_user_data, user_data_in
from bertline.foundation.errors import BertlineError
from bertline.foundation.plugins import with_plugins

_OWN: dict[str, type[CorpusReader]] = {
    "text": TextReader,
    "wikiextractor": WikiExtractorReader,
    "xml": XmlReader,
    "jsonl": TableReader,
    "csv": TableReader,
    "parquet": TableReader,
    "hub": HubReader,
}
READERS = with_plugins("bertline.readers", _OWN)
"""Readers by name, which is the value of `kind` in the configuration of a corpus, and of a source."""


def reader_with(reader: type[CorpusReader], settings: type[Any], what: str) -> Any:
    """Return the class of a reader together with settings; TypeError if it does not say where the text is."""
    if not names_user_data(reader):
        raise TypeError(f"{reader.__name__} has no field of the type UserPath: DVC would not see that its text changed")
    name = reader.__name__.removesuffix("Reader") + what
    members = {"__doc__": reader.__doc__, "__module__": __name__}
    return dataclass(frozen=True, kw_only=True)(type(name, (reader, settings), members))


_DISTINCT = dict.fromkeys(READERS.values())
CORPORA = {reader: reader_with(reader, CorpusSettings, "CorpusConfig") for reader in _DISTINCT}
"""By reader, its settings together with those of every corpus."""
SOURCES = {reader: reader_with(reader, SourceSettings, "Source") for reader in _DISTINCT}
"""By reader, its settings together with those of one of several sources."""

# A worker process finds a class by its name in a module.
globals().update({one.__name__: one for one in (*CORPORA.values(), *SOURCES.values())})

if TYPE_CHECKING:
    SourceConfig: TypeAlias = Any  # classes that are known when the program runs
else:
    SourceConfig = Union[tuple(SOURCES.values())]  # noqa: UP007


@dataclass(frozen=True, kw_only=True)
class SourcesCorpusConfig(CorpusSettings):
    """Several sources at once, each with a reader of its own."""

    kind: Literal["sources"]
    sources: dict[str, SourceConfig]
    """The sources by name. They are read in the order of their names."""
    language_exponent: PositiveFraction | None
    """Languages are read in proportion to their size to the power of this, in (0, 1]; null leaves them as they are."""
    sampling_seed: int
    """Seed of the hashes that choose the documents of a source or language that is not read as a whole."""

    def check(self) -> None:
        for name in self.sources:
            if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]*", name):
                raise ValueError(
                    f"sources has the name {name!r}, which cannot be a folder and a DVC stage; use letters, digits, "
                    "'_' and '-'"
                )
        if not self.sources:
            raise ValueError(
                "sources is empty; add one with +source@corpus.sources.NAME=text corpus.sources.NAME.path=/path/to/it"
            )
        without = [
            name
            for name, source in self.sources.items()
            if source.language is None and getattr(source, "language_column", None) is None
        ]
        if self.language_exponent is not None and without:
            raise ValueError(
                f"language_exponent is {self.language_exponent}, but no language is given for {', '.join(without)}: "
                "set language, or language_column where rows have one"
            )


if TYPE_CHECKING:
    CorpusConfig: TypeAlias = Any
else:
    CorpusConfig = Union[(PythonDocsCorpusConfig, *CORPORA.values(), SourcesCorpusConfig)]


@dataclass(frozen=True, kw_only=True, slots=True)
class NoCorpusConfig:
    """No corpus: an existing checkpoint is fine-tuned (`experiment=finetune`)."""

    kind: Literal["none"]


def readers_of(
    corpus: CorpusConfig | NoCorpusConfig, python_docs: PythonDocsConfig | None = None
) -> dict[str, CorpusReader]:
    """Return the readers of a corpus by the name of their source, in the order of names; of a single one it is empty.

    The default corpus has a reader where `python_docs`, its packages, are given.
    """
    if isinstance(corpus, SourcesCorpusConfig):
        return {name: corpus.sources[name] for name in sorted(corpus.sources)}
    if isinstance(corpus, PythonDocsCorpusConfig) and python_docs is not None:
        reader: Any = ModulesReader(python_docs, fails=corpus.on_undecodable == "fail")
        return {"": reader}
    return {"": corpus} if isinstance(corpus, CorpusReader) else {}


def texts_of(corpus: CorpusConfig | NoCorpusConfig) -> Iterator[UserData]:
    """Yield where the user's text is."""
    yield from (data for data in user_data_in(corpus, "corpus") if not data.key.startswith("corpus.decontaminate."))


@contextmanager
def named_errors(source: str) -> Iterator[None]:
    """Name the source in errors, where there are several."""
    try:
        yield
    except BertlineError as error:
        if not source:
            raise
        raise type(error)(f"source {source} (corpus.sources.{source}): {error}") from error
