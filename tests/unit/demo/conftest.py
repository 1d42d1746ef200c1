"""A pretend package, and small modules to make the tasks of the demo from."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from bertline.corpus.sentences.learned import LearnedConfig
from bertline.demo.config import PackageConfig, PythonDocsConfig
from bertline.demo.docstrings import Docstring, ModuleDocs, PythonDocsCorpusConfig

# What functions can be about; each makes a distinct summary and a distinct passage.
TOPICS = (
    "matrices", "graphs", "files", "sockets", "threads", "colours", "axes", "queries", "tensors", "dates",
    "strings", "polynomials", "trials", "samples", "events", "layers",
)  # fmt: skip
FLAVOURS = {"numpy": "arrays", "pandas": "frames", "mpmath": "digits"}


@pytest.fixture
def docs_corpus_config() -> PythonDocsCorpusConfig:
    return PythonDocsCorpusConfig(
        kind="python_docs", validation_fraction=0.2, split_seed=0, deduplicate="paragraph",
        min_document_characters=1, on_undecodable="skip",
        sentences=LearnedConfig(kind="learned", abbreviations=()),
    )  # fmt: skip


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


@pytest.fixture
def modules():
    """Three libraries of eight modules; the last three of each are held out."""

    def docstrings(package, number):
        for place, topic in enumerate(TOPICS):
            summary = (
                f"Turn {topic} of size {number} into {FLAVOURS[package]} that {package} users of kind {place} read."
            )
            details = f"The {topic} for numpy.{topic} are read in order, as in pd.read and mpmath too."
            yield Docstring(f"Reader.load_{topic}", "function", ("path", topic), f"{summary}\n\n{details}")

    return [
        ModuleDocs(package, f"{package}.part{number}", f"{package}.part{number}", number >= 5, tuple(docs))
        for package in ("numpy", "pandas", "mpmath")
        for number in range(8)
        if (docs := list(docstrings(package, number)))
    ]
