"""Sentences by each kind of splitting, in the corpus that is built."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertline.corpus.sentences.learned import LearnedConfig
from bertline.corpus.sentences.splitter import LinesConfig
from bertline.corpus.storage import read_documents
from corpora import build

Make = Callable[..., Any]
TEXT = """EARLY LIFE

It rained. Dr.
 Smith\tstayed.\u200b

Later; much later.
Nothing."""


@pytest.mark.parametrize(
    ("sentences", "expected"),
    [
        (
            LearnedConfig(kind="learned", abbreviations=()),
            ["EARLY LIFE", "It rained.", "Dr. Smith stayed.", "Later; much later.", "Nothing."],
        ),
        (
            LinesConfig(kind="lines"),
            ["EARLY LIFE", "It rained. Dr.", "Smith stayed.", "Later; much later.", "Nothing."],
        ),
    ],
)
def test_a_kind_splits_the_corpus(text_config: Make, tmp_path: Path, sentences: Any, expected: list[str]) -> None:
    (tmp_path / "text").mkdir()
    (tmp_path / "text/a.txt").write_text(TEXT)
    build(text_config(sentences=sentences, validation_fraction=0.0), tmp_path / "out")
    assert [sentence for item in read_documents(tmp_path / "out", "train") for sentence in item.sentences] == expected
