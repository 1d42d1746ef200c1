"""Configuration of the corpus stage, and of the Python packages that the default corpus and tasks read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageConfig:
    """One Python package whose documentation strings are read."""

    module: str
    """Top-level import name (`sklearn`), or `python` for the standard library."""
    distribution: str | None
    """Name on the package index (`scikit-learn`); None for the standard library."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonDocsConfig:
    """The packages and their split. One section, because corpus and tasks must agree on what is held out."""

    packages: tuple[PackageConfig, ...]
    held_out_fraction: float
    """Expected share of each package's groups of modules that is never pretrained on. 0 < x < 1."""
    split_seed: int
    """Seed of the hash that decides which groups are held out. Another seed moves groups; growing packages do not."""

    def __post_init__(self) -> None:
        if not 0 < self.held_out_fraction < 1:
            raise ValueError(f"held_out_fraction must lie between 0 and 1, found {self.held_out_fraction}")
        if not self.packages:
            raise ValueError("packages is empty; name at least one package")


@dataclass(frozen=True, kw_only=True, slots=True)
class _CommonCorpusConfig:
    """What every kind of corpus shares."""

    validation_fraction: float
    """Share of document groups kept for validation, by a hash of the group. python_docs uses its own split."""
    split_seed: int
    deduplicate: Literal["document", "paragraph", "none"]
    """Exact duplicates, compared after normalising case and white space; the first in reading order stays."""
    min_document_characters: int
    """Shorter documents are dropped and counted."""
    on_undecodable: Literal["fail", "skip"]
    """What to do with a file or record that is not text in `encoding`: stop, naming it, or count it and go on."""
    shard_documents: int
    """Documents a Parquet shard."""

    def __post_init__(self) -> None:
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must be in [0, 1), found {self.validation_fraction}")
        if self.min_document_characters < 0:
            raise ValueError(f"min_document_characters must not be negative, found {self.min_document_characters}")
        if self.shard_documents < 1:
            raise ValueError(f"shard_documents must be at least 1, found {self.shard_documents}")


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonDocsCorpusConfig(_CommonCorpusConfig):
    """Documentation strings of the packages in `python_docs`: the default, which needs no download."""

    kind: Literal["python_docs"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TextCorpusConfig(_CommonCorpusConfig):
    """Plain text files, `.txt` or `.txt.gz`."""

    kind: Literal["text"]
    path: str
    """A file, a folder (searched recursively) or a glob."""
    document: Literal["file", "blank_line", "line"]
    """What one document is: a whole file, a block between blank lines, or a line."""
    encoding: str


@dataclass(frozen=True, kw_only=True, slots=True)
class WikiExtractorCorpusConfig(_CommonCorpusConfig):
    """WikiExtractor output: `<doc id= url= title=>` ... `</doc>`, first line the title."""

    kind: Literal["wikiextractor"]
    path: str
    encoding: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TableCorpusConfig(_CommonCorpusConfig):
    """JSONL, CSV or Parquet with a text column; a row is a document."""

    kind: Literal["jsonl", "csv", "parquet"]
    path: str
    text_column: str
    group_column: str | None
    """Rows with the same value go to the same side of the split; None takes the document itself as its group."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HubCorpusConfig(_CommonCorpusConfig):
    """A Hugging Face dataset by name; a row is a document."""

    kind: Literal["hub"]
    name: str
    revision: str
    """A commit hash, so that the same text is read each time."""
    subset: str | None
    split: str
    text_column: str
    group_column: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class NoCorpusConfig:
    """No text is read: a checkpoint is fine-tuned as it is (`experiment=finetune`)."""

    kind: Literal["none"]


CorpusConfig = (
    PythonDocsCorpusConfig | TextCorpusConfig | WikiExtractorCorpusConfig | TableCorpusConfig | HubCorpusConfig
)
