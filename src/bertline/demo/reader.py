"""Docstrings of installed Python packages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from bertline.corpus.document import SourceDocument
from bertline.corpus.reader import CorpusReader
from bertline.demo.config import PythonDocsConfig
from bertline.demo.docstrings import read_modules
from bertline.foundation.errors import DataError


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonDocsCorpusConfig(CorpusReader):
    """Docstrings of the packages in `python_docs`: the default corpus, which needs no download."""

    user_data: ClassVar[str | None] = None
    kind: Literal["python_docs"]

    def read(
        self, dropped: Counter[str], *, python_docs: PythonDocsConfig, num_workers: int
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
        if modules["undecodable"] and self.on_undecodable == "fail":
            raise DataError(
                f"{modules['undecodable']} modules of the packages in python_docs are not text in their encoding. Set "
                "corpus.on_undecodable=skip to leave them out."
            )
