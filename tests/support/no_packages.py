"""Reading a corpus of any kind in a test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bertline.corpus.document import SourceDocument
from bertline.corpus.registry import CorpusConfig
from bertline.demo.config import PackageConfig, PythonDocsConfig

NO_PACKAGES = PythonDocsConfig(
    packages=(PackageConfig(module="none", distribution=None),), held_out_fraction=0.5, split_seed=0
)


def documents_of(config: CorpusConfig, dropped: Counter[str]) -> Iterator[SourceDocument]:
    """The documents of a corpus that is not of Python packages."""
    return config.read(dropped, python_docs=NO_PACKAGES, num_workers=1)
