"""Docstrings of installed Python packages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from bertline.corpus.document import SourceDocument
from bertline.corpus.reader import CorpusSettings, ReadingSettings
from bertline.demo.config import PythonDocsConfig
from bertline.demo.docstrings import read_modules
from bertline.foundation.errors import DataError


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonDocsCorpusConfig(ReadingSettings, CorpusSettings):
    """Docstrings of the packages in `python_docs`: the default corpus, which needs no download."""

    kind: Literal["python_docs"]


def module_documents(
    config: PythonDocsCorpusConfig, python_docs: PythonDocsConfig, dropped: Counter[str], *, num_workers: int
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


def all_on_one_side(config: PythonDocsConfig, *, held_out: bool) -> str:
    """Return the message for packages whose modules are all held out, or all pretrained on."""
    side = "is held out" if held_out else "is pretrained on"
    return (
        f"python_docs: everything {side}: with split_seed {config.split_seed}, the names of the packages' groups of "
        f"modules all hash to one side of held_out_fraction ({config.held_out_fraction}). Choose another "
        "python_docs.split_seed, or more packages."
    )
