"""Document readers for each kind of corpus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import assert_never

from bertline.corpus.config import (
    CorpusConfig,
    HubCorpusConfig,
    PythonDocsConfig,
    PythonDocsCorpusConfig,
    TableCorpusConfig,
    TextCorpusConfig,
    WikiExtractorCorpusConfig,
)
from bertline.corpus.document import SourceDocument
from bertline.corpus.python_docs import read_modules
from bertline.corpus.tables import read_hub, read_tables
from bertline.corpus.text_files import read_text_files, read_wikiextractor
from bertline.foundation.errors import DataError


def read_source(
    config: CorpusConfig, python_docs: PythonDocsConfig, *, num_workers: int, dropped: Counter[str]
) -> Iterator[SourceDocument]:
    """Read the documents of the configured source in a fixed order.

    Args:
        config: The source.
        python_docs: The packages for `kind: python_docs`.
        num_workers: Number of processes that parse Python source.
        dropped: Counter of left-out documents (`documents/REASON`), paragraphs (`paragraphs/REASON`) and files
            (`files/REASON`).
    """
    match config:
        case PythonDocsCorpusConfig():
            return _read_python_docs(config, python_docs, num_workers=num_workers, dropped=dropped)
        case TextCorpusConfig():
            return read_text_files(config, dropped)
        case WikiExtractorCorpusConfig():
            return read_wikiextractor(config, dropped)
        case TableCorpusConfig():
            return read_tables(config, dropped)
        case HubCorpusConfig():
            return read_hub(config, dropped)
        case _:
            assert_never(config)


def _read_python_docs(
    config: PythonDocsCorpusConfig, python_docs: PythonDocsConfig, *, num_workers: int, dropped: Counter[str]
) -> Iterator[SourceDocument]:
    """Read each module as a document: the prose of its docstrings in source order."""
    modules: Counter[str] = Counter()
    for module in read_modules(python_docs, num_workers=num_workers, dropped=modules):
        paragraphs: list[str] = []
        for docstring in module.docstrings:
            prose = docstring.prose
            paragraphs.extend(prose.paragraphs)
            dropped.update({f"paragraphs/{reason}": count for reason, count in prose.dropped.items()})
        yield SourceDocument(
            module.name, module.group, tuple(paragraphs), split="validation" if module.held_out else "train"
        )
    dropped.update({f"documents/{reason}": count for reason, count in modules.items()})
    if modules["undecodable"] and config.on_undecodable == "fail":
        raise DataError(
            f"{modules['undecodable']} modules of the packages in python_docs are not text in their encoding. Set "
            "corpus.on_undecodable=skip to leave them out."
        )
