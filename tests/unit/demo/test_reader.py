"""The corpus made of docstrings: the same bytes with any number of workers, and no paragraph on both sides."""

from __future__ import annotations

from pathlib import Path

from bertline.corpus.build import build_corpus
from bertline.corpus.storage import read_documents
from bertline.demo.config import PythonDocsConfig
from bertline.demo.docstrings import PythonDocsCorpusConfig, read_modules
from bertline.demo.prose import prose_paragraphs
from bertline.foundation.files import sha256_of_path
from corpora import local, manifest_of


def test_the_documentation_corpus_is_the_same_with_workers_and_no_group_or_paragraph_is_on_both_sides(
    docs_corpus_config: PythonDocsCorpusConfig, pretend_package: PythonDocsConfig, tmp_path: Path
) -> None:
    build_corpus(docs_corpus_config, pretend_package, tmp_path / "one", **local(tmp_path / "one"))
    build_corpus(docs_corpus_config, pretend_package, tmp_path / "two", **local(tmp_path / "two", 2))

    assert sha256_of_path(tmp_path / "one") == sha256_of_path(tmp_path / "two")
    held_out = {module.name for module in read_modules(pretend_package) if module.held_out}
    assert {document.id for document in read_documents(tmp_path / "one", "validation")} == held_out
    manifest = manifest_of(tmp_path / "one")
    assert manifest["packages"] == {"pretend": "1.2.3"}
    assert manifest["dropped"]["documents/test_module"] == 1

    texts = {
        split: " | ".join(" ".join(document.sentences) for document in read_documents(tmp_path / "one", split)).lower()
        for split in ("train", "validation")
    }
    paragraphs = {
        " ".join(paragraph.lower().split())
        for module in read_modules(pretend_package)
        for docstring in module.docstrings
        for paragraph in prose_paragraphs(docstring.text).paragraphs
    }
    sides = [{split for split in texts if paragraph in texts[split]} for paragraph in paragraphs]
    assert all(len(side) == 1 for side in sides)
    assert {"train"} in sides and {"validation"} in sides
