"""One iterator of documents for each kind of corpus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bertline.corpus.config import (
    CorpusConfig,
    PythonDocsConfig,
    PythonDocsCorpusConfig,
)
from bertline.corpus.document import SourceDocument
from bertline.corpus.python_docs import prose_paragraphs, read_modules


def read_source(
    config: CorpusConfig, python_docs: PythonDocsConfig, *, num_workers: int, dropped: Counter[str]
) -> Iterator[SourceDocument]:
    """Read the documents of the configured source in a fixed order.

    Args:
        config: The source.
        python_docs: The packages of `kind: python_docs`.
        num_workers: Processes that parse Python source.
        dropped: Counts what a reader leaves out, `documents/REASON` and `paragraphs/REASON`.
    """
    assert isinstance(config, PythonDocsCorpusConfig)
    yield from _read_python_docs(python_docs, num_workers=num_workers, dropped=dropped)


def _read_python_docs(config: PythonDocsConfig, *, num_workers: int, dropped: Counter[str]) -> Iterator[SourceDocument]:
    """A document is a module: the prose of its documentation strings in source order."""
    modules: Counter[str] = Counter()
    for module in read_modules(config, num_workers=num_workers, dropped=modules):
        paragraphs: list[str] = []
        for docstring in module.docstrings:
            prose = prose_paragraphs(docstring.text)
            paragraphs.extend(prose.paragraphs)
            dropped.update({f"paragraphs/{reason}": count for reason, count in prose.dropped.items()})
        yield SourceDocument(
            module.name, module.group, tuple(paragraphs), split="validation" if module.held_out else "train"
        )
    dropped.update({f"documents/{reason}": count for reason, count in modules.items()})
