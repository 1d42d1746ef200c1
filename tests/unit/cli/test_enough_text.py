"""`configure` says that a text has too few documents for train and validation, without reading all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bertline.cli.inputs import check_enough_text
from bertline.config import pipeline_config
from bertline.corpus.build import build_corpus
from bertline.corpus.document import SourceDocument
from bertline.corpus.files import Part
from bertline.corpus.readers.text import TextReader
from bertline.foundation.errors import ConfigError
from engines import local

Check = Callable[..., None]
LINE = "{}: The old gardener watered the trees before the rain came, and my sister, who was afraid, said nothing.\n"


@pytest.fixture
def check(composed: Any) -> Check:
    return lambda *overrides: check_enough_text(pipeline_config(composed(*overrides)))


@pytest.fixture
def texts(tmp_path: Path) -> Callable[..., str]:
    """`texts("a", "a", "b")`: a folder with a text file for each name, equal ones with equal text."""

    def write(*names: str) -> str:
        folder = tmp_path / "my texts"
        folder.mkdir(exist_ok=True)
        for number, name in enumerate(names):
            (folder / f"{number}.txt").write_text(LINE.format(name) * 3)
        return f"corpus.path='{folder}'"

    return write


def test_a_single_file_is_named_with_what_was_found_and_what_to_do(check: Check, texts: Callable[..., str]) -> None:
    with pytest.raises(ConfigError) as raised:
        check("corpus=text", texts("a"))
    said = str(raised.value)
    assert "my texts, with 1 document to train on, " in said and "expected at least 2 for each of train" in said
    assert "corpus.document=blank_line, line or regex" in said


def test_short_documents_and_duplicates_do_not_count(check: Check, texts: Callable[..., str], tmp_path: Path) -> None:
    place = texts("a", "a", "b", "c")
    (tmp_path / "my texts" / "short.txt").write_text("Too short.")
    with pytest.raises(ConfigError, match="with 3 documents to train on, .*min_docu"):
        check("corpus=text", place)
    check("corpus=text", place, "corpus.deduplicate=none")


def test_one_segment_needs_one_document_in_each_split(check: Check, texts: Callable[..., str]) -> None:
    single = ("objective=mlm", "examples=full_sentences")
    check("corpus=text", texts("a", "b"), *single)
    with pytest.raises(ConfigError, match="expected at least 2 for each"):
        check("corpus=text", texts("a", "b"))


def test_no_more_is_read_than_is_needed(
    check: Check, texts: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def endless(self: TextReader, part: Part) -> Iterator[SourceDocument]:
        while True:
            read.append("word " * 100)
            yield SourceDocument(str(len(read)), "", (f"{len(read)} {read[-1]}",))

    monkeypatch.setattr(TextReader, "read_part", endless)
    check("corpus=text", texts("a"))
    assert len(read) == 4


@pytest.mark.parametrize("seed", range(4))
def test_what_is_enough_for_configure_is_enough_for_the_corpus(
    composed: Any, texts: Callable[..., str], tmp_path: Path, seed: int
) -> None:
    config = pipeline_config(composed("corpus=text", texts("a", "b", "c", "d"), f"corpus.split_seed={seed}"))
    check_enough_text(config)
    counts = build_corpus(config.corpus, config.python_docs, tmp_path / "corpus", **local(tmp_path / "corpus"))
    assert (counts["train/documents"], counts["validation/documents"]) == (2, 2)
