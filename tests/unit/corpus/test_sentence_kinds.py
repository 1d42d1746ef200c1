"""Sentences by lines and by a pattern, and what becomes of headings, in the corpus that is built."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertline.corpus.sentences.learned import LearnedConfig
from bertline.corpus.sentences.splitter import LinesConfig, RegexConfig, is_heading, place_headings
from bertline.corpus.storage import read_documents
from corpora import build, drops_of, manifest_of

Make = Callable[..., Any]
TEXT = """EARLY LIFE

It rained. Dr.
 Smith\tstayed.\u200b

Later; much later.
Nothing."""


def built(tmp_path: Path, config: Any) -> list[str]:
    (tmp_path / "text").mkdir(exist_ok=True)
    (tmp_path / "text/a.txt").write_text(TEXT)
    build(config, tmp_path / "out")
    return [sentence for item in read_documents(tmp_path / "out", "train") for sentence in item.sentences]


def learned(headings: Any) -> LearnedConfig:
    return LearnedConfig(kind="learned", headings=headings, abbreviations=())


@pytest.mark.parametrize(
    ("sentences", "expected"),
    [
        (learned("stay"), ["EARLY LIFE", "It rained.", "Dr. Smith stayed.", "Later; much later.", "Nothing."]),
        (learned("joined"), ["EARLY LIFE It rained.", "Dr. Smith stayed.", "Later; much later.", "Nothing."]),
        (learned("dropped"), ["It rained.", "Dr. Smith stayed.", "Later; much later.", "Nothing."]),
        (
            LinesConfig(kind="lines", headings="stay"),
            ["EARLY LIFE", "It rained. Dr.", "Smith stayed.", "Later; much later.", "Nothing."],
        ),
        (
            RegexConfig(kind="regex", headings="stay", pattern="[;.](?= )"),
            ["EARLY LIFE", "It rained.", "Dr.", "Smith stayed.", "Later;", "much later.", "Nothing."],
        ),
    ],
)
def test_a_kind_splits_the_corpus(text_config: Make, tmp_path: Path, sentences: Any, expected: list[str]) -> None:
    assert built(tmp_path, text_config(sentences=sentences, validation_fraction=0.0)) == expected


def test_dropped_headings_are_counted_and_shown(text_config: Make, tmp_path: Path) -> None:
    built(tmp_path, text_config(sentences=learned("dropped"), validation_fraction=0.0))
    manifest = manifest_of(tmp_path / "out")
    assert manifest["dropped"] == {"paragraphs/heading": 1}
    assert drops_of(tmp_path / "out")["samples"]["paragraphs/heading"] == [
        {"id": "a.txt", "text": "EARLY LIFE", "note": ""}
    ]


HEADINGS = ("History", "BOOK I", "CHAPTER IV.", "External links.", "2.1 Results and discussion", "Первые годы", "早年")
SENTENCES = (
    "He left.", "It was late", "Who?", "and so on", "", "- item", "word " * 13, "One.\nTwo", "Come here!",
    "Dr. Smith of St. Mary\'s.", "He said:", "今天下雨。", "मैं घर गया।", "ကျွန်တော်သွားသည်။", "བཀྲ་ཤིས་བདེ་ལེགས།", "ฉันรักแมว",
)  # fmt: skip


@pytest.mark.parametrize("text", [*HEADINGS, *SENTENCES])
def test_headings_are_told_from_sentences(text: str) -> None:
    assert is_heading(text) == (text in HEADINGS)


def test_the_last_paragraph_is_no_heading_and_two_headings_join_what_follows_both() -> None:
    paragraphs = [
        ("Life", ["Life"]),
        ("Youth", ["Youth"]),
        ("He ran. He won.", ["He ran.", "He won."]),
        ("Tom", ["Tom"]),
    ]
    assert [sentences for _, sentences in place_headings(paragraphs, "joined")[0]] == [
        ["Life Youth He ran.", "He won."],
        ["Tom"],
    ]
    placed, left_out = place_headings(paragraphs, "dropped")
    assert [sentences for _, sentences in placed] == [["He ran.", "He won."], ["Tom"]]
    assert left_out == ("Life", "Youth")
