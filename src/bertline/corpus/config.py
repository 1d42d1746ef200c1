"""Configuration of the Python packages used by the default corpus and tasks, and of a missing corpus."""

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
class NoCorpusConfig:
    """No corpus: an existing checkpoint is fine-tuned (`experiment=finetune`)."""

    kind: Literal["none"]
