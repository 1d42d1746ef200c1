"""Configurations for the tests of the corpus."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertline.corpus.sentences.learned import LearnedConfig
from reading import TableCorpusConfig, TextCorpusConfig, WikiExtractorCorpusConfig, XmlCorpusConfig

COMMON = {
    "validation_fraction": 0.2, "split_seed": 0, "deduplicate": "document", "min_document_characters": 1,
    "on_undecodable": "fail", "sentences": LearnedConfig(kind="learned", abbreviations=()),
}  # fmt: skip
PLAIN_TEXT = {"document": "file", "document_start": None, "encoding": "utf-8"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder that `path` names."""
    (tmp_path / "text").mkdir()
    return tmp_path / "text"


def maker(config: Any, kind: str, **own: Any) -> Any:
    """Return a fixture that makes configurations of a kind, of the folder `text` and with changes."""

    @pytest.fixture
    def fixture(tmp_path: Path) -> Callable[..., Any]:
        def make(kind: str = kind, **changes: Any) -> Any:
            return config(kind=kind, **{"path": str(tmp_path / "text"), **own, **COMMON, **changes})

        return make

    return fixture


text_config = maker(TextCorpusConfig, "text", **PLAIN_TEXT)
wiki_config = maker(WikiExtractorCorpusConfig, "wikiextractor", encoding="utf-8")
table_config = maker(TableCorpusConfig, "jsonl", text_column="text", group_column=None)
xml_config = maker(XmlCorpusConfig, "xml", document=None, paragraphs=("p",), ignored=(), spaces=())
