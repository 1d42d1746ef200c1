"""Configurations for the tests of the corpus."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertline.corpus.sentences.learned import LearnedConfig
from reading import TableCorpusConfig, TextCorpusConfig, WikiExtractorCorpusConfig, XmlCorpusConfig

COMMON = {
    "validation_fraction": 0.2,
    "split_seed": 0,
    "deduplicate": "document",
    "min_document_characters": 1,
    "on_undecodable": "fail",
    "sentences": LearnedConfig(kind="learned", headings="stay", abbreviations=()),
}
PLAIN_TEXT = {"document": "file", "document_start": None, "encoding": "utf-8", "on_markup": "fail"}


@pytest.fixture
def text_config(tmp_path: Path) -> Callable[..., TextCorpusConfig]:
    def make(**changes: Any) -> TextCorpusConfig:
        fields = {"path": str(tmp_path / "text"), **PLAIN_TEXT, **COMMON, **changes}
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
def xml_config(tmp_path: Path) -> Callable[..., XmlCorpusConfig]:
    paths: dict[str, Any] = {"document": None, "paragraphs": ("p",), "ignored": (), "spaces": ()}

    def make(**changes: Any) -> XmlCorpusConfig:
        return XmlCorpusConfig(kind="xml", **{"path": str(tmp_path / "text"), **paths, **COMMON, **changes})

    return make
