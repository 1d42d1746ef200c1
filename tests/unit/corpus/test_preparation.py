from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable

import pytest

from bertline.corpus.build import select_documents, split_of
from bertline.corpus.document import SourceDocument
from bertline.corpus.preparation import clean, prepare_documents
from bertline.corpus.readers.text import TextCorpusConfig


@pytest.mark.parametrize(
    ("dirty", "expected"),
    [
        ("  two\t words\r\n", "two words"),
        ("zero\u200bwidth soft\u00adhyphen", "zerowidth softhyphen"),
        ("\ufeffmark", "mark"),
        ("no\u00a0break\u3000space", "no break space"),
        ("bell\x07 and \x00 nul", "bell and nul"),
        ("lone \ud800 surrogate", "lone surrogate"),
        ("Cafe\u0301", "Café"),
        ("e\u200b\u0301", "é"),
        ("\x00 \u200b", ""),
    ],
)
def test_cleaning(dirty: str, expected: str) -> None:
    assert clean(dirty) == expected
    assert unicodedata.is_normalized("NFC", clean(dirty))


Make = Callable[..., TextCorpusConfig]
TEXTS = [("Common one.", "Only in A."), ("COMMON  one.", "Only in B."), ("Common one.",), ("common one.", "only in a.")]
BATCH = [SourceDocument(f"d{number}", "", paragraphs) for number, paragraphs in enumerate(TEXTS)]


@pytest.mark.parametrize(
    ("deduplicate", "left", "dropped"),
    [
        ("none", [2, 2, 1, 2], {}),
        ("document", [2, 2, 1], {"documents/duplicate": 1}),
        ("paragraph", [2, 1], {"documents/duplicate": 2, "paragraphs/duplicate": 4}),
    ],
)
def test_the_first_of_equal_texts_stays(
    text_config: Make, deduplicate: str, left: list[int], dropped: dict[str, int]
) -> None:
    counts: Counter[str] = Counter()

    kept = list(select_documents(prepare_documents(BATCH), text_config(deduplicate=deduplicate), counts))

    assert [len(document.paragraphs) for document in kept] == left
    assert +counts == dropped


def test_short_and_empty_documents_are_counted(text_config: Make) -> None:
    batch = [SourceDocument("a", "", ("Short.",)), SourceDocument("b", "", (" \x00",)), SourceDocument("c", "", ())]
    counts: Counter[str] = Counter()

    assert list(select_documents(prepare_documents(batch), text_config(min_document_characters=7), counts)) == []
    assert counts == {"documents/too_short": 1, "documents/empty": 2}


def test_the_split_follows_the_group_and_comes_near_the_fraction(text_config: Make) -> None:
    config = text_config(validation_fraction=0.2)
    sides = {}
    for number in range(2000):
        batch = [SourceDocument(f"{number}.{part}", f"group {number}", (f"Text {part}.",)) for part in range(2)]
        first, second = (split_of(document, config) for document in prepare_documents(batch))
        assert first == second
        sides[number] = first
    assert 0.17 < sum(side == "validation" for side in sides.values()) / len(sides) < 0.23
