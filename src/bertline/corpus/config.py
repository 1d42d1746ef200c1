"""Configuration of the corpus stage, and of the Python packages used by the default corpus and tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageConfig:
    """A Python package whose docstrings are read."""

    module: str
    """Top-level import name (`sklearn`), or `python` for the standard library."""
    distribution: str | None
    """Name on the package index (`scikit-learn`); None for the standard library."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonDocsConfig:
    """The packages and their split.

    Corpus and tasks share this section, because they must agree on the held-out modules.
    """

    packages: tuple[PackageConfig, ...]
    """Packages whose docstrings are read."""
    held_out_fraction: float
    """Expected fraction of each package's module groups that is held out from pretraining, in (0, 1)."""
    split_seed: int
    """Seed of the hash that selects held-out groups. Another seed moves groups; growth of a package does not."""

    def __post_init__(self) -> None:
        if not 0 < self.held_out_fraction < 1:
            raise ValueError(f"held_out_fraction must lie between 0 and 1, found {self.held_out_fraction}")
        if not self.packages:
            raise ValueError("packages is empty; name at least one package")


@dataclass(frozen=True, kw_only=True, slots=True)
class _CommonCorpusConfig:
    """Settings of every kind of corpus."""

    validation_fraction: float
    """Fraction of document groups kept for validation, by a hash of the group. python_docs has its own split."""
    split_seed: int
    """Seed of the hash that selects validation groups."""
    deduplicate: Literal["document", "paragraph", "none"]
    """Unit of exact de-duplication, after normalising case and white space; the first in reading order is kept."""
    min_document_characters: int
    """Minimum document length in characters; shorter documents are dropped and counted."""
    on_undecodable: Literal["fail", "skip"]
    """How to handle a file or record that is not text in `encoding`: fail with its name, or skip and count it."""
    shard_documents: int
    """Documents per Parquet shard."""

    def __post_init__(self) -> None:
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must be in [0, 1), found {self.validation_fraction}")
        if self.min_document_characters < 0:
            raise ValueError(f"min_document_characters must not be negative, found {self.min_document_characters}")
        if self.shard_documents < 1:
            raise ValueError(f"shard_documents must be at least 1, found {self.shard_documents}")


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonDocsCorpusConfig(_CommonCorpusConfig):
    """Docstrings of the packages in `python_docs`: the default corpus, which needs no download."""

    kind: Literal["python_docs"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TextCorpusConfig(_CommonCorpusConfig):
    """Plain text files, `.txt` or `.txt.gz`."""

    kind: Literal["text"]
    path: str
    """A file, a folder (searched recursively) or a glob."""
    document: Literal["file", "blank_line", "line"]
    """Unit of a document: a whole file, a block between blank lines, or a line."""
    encoding: str
    """Character encoding of the files."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WikiExtractorCorpusConfig(_CommonCorpusConfig):
    """WikiExtractor output: `<doc id= url= title=>` ... `</doc>`, with the title as the first line."""

    kind: Literal["wikiextractor"]
    path: str
    """A file, a folder (searched recursively) or a glob."""
    encoding: str
    """Character encoding of the files."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TableCorpusConfig(_CommonCorpusConfig):
    """JSONL, CSV or Parquet files with a text column; each row is a document."""

    kind: Literal["jsonl", "csv", "parquet"]
    path: str
    """A file, a folder (searched recursively) or a glob."""
    text_column: str
    """Name of the text column."""
    group_column: str | None
    """Column whose values group rows: a group is entirely in train or validation. None: each document is a group."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HubCorpusConfig(_CommonCorpusConfig):
    """A Hugging Face dataset; each row is a document."""

    kind: Literal["hub"]
    name: str
    """Name of the dataset on the hub, such as `wikimedia/wikipedia`."""
    revision: str
    """Commit hash of the dataset, for reproducibility."""
    subset: str | None
    """Name of the subset (configuration) of the dataset; None: the only one."""
    split: str
    """Split of the dataset that is read."""
    text_column: str
    """Name of the text column."""
    group_column: str | None
    """Column whose values group rows: a group is entirely in train or validation. None: each document is a group."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NoCorpusConfig:
    """No corpus: an existing checkpoint is fine-tuned (`experiment=finetune`)."""

    kind: Literal["none"]


CorpusConfig = (
    PythonDocsCorpusConfig | TextCorpusConfig | WikiExtractorCorpusConfig | TableCorpusConfig | HubCorpusConfig
)
