"""Configurations and a pretend package for the tests of the corpus."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertline.corpus.config import PackageConfig, PythonDocsConfig
from bertline.corpus.readers.python_docs import PythonDocsCorpusConfig
from bertline.corpus.readers.table import TableCorpusConfig
from bertline.corpus.readers.text import TextCorpusConfig
from bertline.corpus.readers.wikiextractor import WikiExtractorCorpusConfig

COMMON = {
    "validation_fraction": 0.2,
    "split_seed": 0,
    "deduplicate": "document",
    "min_document_characters": 1,
    "on_undecodable": "fail",
    "shard_documents": 10,
}


@pytest.fixture
def text_config(tmp_path: Path) -> Callable[..., TextCorpusConfig]:
    def make(**changes: Any) -> TextCorpusConfig:
        fields = {"path": str(tmp_path / "text"), "document": "file", "encoding": "utf-8", **COMMON, **changes}
        return TextCorpusConfig(kind="text", **fields)

    return make


@pytest.fixture
def wiki_config(tmp_path: Path) -> Callable[..., WikiExtractorCorpusConfig]:
    def make(**changes: Any) -> WikiExtractorCorpusConfig:
        fields = {"path": str(tmp_path / "text"), "encoding": "utf-8", **COMMON, **changes}
        return WikiExtractorCorpusConfig(kind="wikiextractor", **fields)

    return make


@pytest.fixture
def table_config(tmp_path: Path) -> Callable[..., TableCorpusConfig]:
    def make(kind: str, **changes: Any) -> TableCorpusConfig:
        fields = {"path": str(tmp_path / "text"), "text_column": "text", "group_column": None, **COMMON, **changes}
        return TableCorpusConfig(kind=kind, **fields)

    return make


@pytest.fixture
def docs_corpus_config() -> PythonDocsCorpusConfig:
    return PythonDocsCorpusConfig(
        kind="python_docs", **{**COMMON, "deduplicate": "paragraph", "on_undecodable": "skip"}
    )


_BOILERPLATE = "This paragraph of boilerplate stands word for word in every module of the package."


@pytest.fixture
def pretend_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PythonDocsConfig:
    """An installed package of ten subpackages that raises when it is imported."""
    site = tmp_path / "site"
    root = site / "pretend"
    info = site / "pretend_dist-1.2.3+local.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pretend-dist\nVersion: 1.2.3+local\n")
    for number in range(10):
        folder = root / f"part{number}"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
        boilerplate = _BOILERPLATE.replace(" ", "  ", number % 3)
        (folder / "work.py").write_text(
            f'"""Module number {number} does its own kind of work.\n\n{boilerplate}\n"""\n'
            "class Box:\n"
            f'    """Holds {number} things at a time."""\n'
            "    def __init__(self, size, *, colour=None): pass\n"
            "    def open(self, key):\n"
            '        """Open the box with a key."""\n'
        )
    (root / "__init__.py").write_text('"""The pretend package does nothing."""\nraise RuntimeError("imported")\n')
    (root / "tests").mkdir()
    (root / "tests" / "test_work.py").write_text('"""Check that the work is done."""\n')
    (root / "old.py").write_text('"""Written for Python 2."""\nprint "hello"\n')
    (root / "latin.py").write_bytes(b'"""Caf\xe9 without a declaration."""\n')
    (root / "not-a-module.py").write_text('"""A script that cannot be imported."""\n')
    monkeypatch.syspath_prepend(str(site))
    importlib.invalidate_caches()
    return PythonDocsConfig(
        packages=(PackageConfig(module="pretend", distribution="pretend-dist"),), held_out_fraction=0.2, split_seed=5
    )
