"""Configuration of the demo: the Python packages whose docstrings it reads, and the sources of its tasks."""

from dataclasses import dataclass
from typing import Annotated, Literal

from bertline.foundation.checked import Checked, above, below


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageConfig:
    """A Python package whose docstrings are read."""

    module: str
    """Top-level import name (`sklearn`), or `python` for the standard library."""
    distribution: str | None
    """Name on the package index (`scikit-learn`); None for the standard library."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonDocsConfig(Checked):
    """The packages and their split.

    Corpus and tasks share this section, because they must agree on the held-out modules.
    """

    packages: tuple[PackageConfig, ...]
    """Packages whose docstrings are read."""
    held_out_fraction: Annotated[float, above(0), below(1)]
    """Expected fraction of each package's module groups that is held out from pretraining, in (0, 1)."""
    split_seed: int
    """Seed of the hash that selects held-out groups. Another seed moves groups; growth of a package does not."""

    def check(self) -> None:
        if not self.packages:
            raise ValueError("packages is empty; name at least one package")


@dataclass(frozen=True, kw_only=True, slots=True)
class DocsSourceConfig:
    """What the tasks made from docstrings have in common."""

    min_words: int
    """Minimum number of words of a text; shorter ones are dropped and counted."""
    num_dev_rows: int
    """Number of dev rows."""
    num_test_rows: int
    """Number of test rows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _DocsTextSourceConfig(DocsSourceConfig):
    max_words: int
    """Maximum number of words of a text, or of a document to be found; longer ones are truncated."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DocsLibrarySourceConfig(_DocsTextSourceConfig):
    """Predict which library a passage documents. Built from the packages in `python_docs`, with names removed."""

    kind: Literal["docs_library"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DocsMatchSourceConfig(DocsSourceConfig):
    """Predict whether a summary belongs to a function. Negatives are summaries from the same module."""

    kind: Literal["docs_match"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DocsParametersSourceConfig(_DocsTextSourceConfig):
    """Tag the words of a description that name the function's parameters. Labels come from the signature."""

    kind: Literal["docs_parameters"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DocsSearchSourceConfig(_DocsTextSourceConfig):
    """Find the function for a sentence: the query is its summary, the document the rest of its docstring."""

    kind: Literal["docs_search"]
    num_documents: int
    """Number of documents of the collection."""
