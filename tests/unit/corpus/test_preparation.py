from __future__ import annotations

import unicodedata

import pytest

from bertline.corpus.document import SourceDocument
from bertline.corpus.preparation import clean, duplicate_key, prepare_documents


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


def test_duplicates_ignore_case_and_white_space_only() -> None:
    assert duplicate_key("The  STRASSE") == duplicate_key("the straße")
    assert duplicate_key("a b") != duplicate_key("ab")
    assert duplicate_key("a.") != duplicate_key("a")


def test_the_key_of_a_document_is_that_of_its_text_whatever_its_characters() -> None:
    characters = [chr(code) for code in range(0x20000) if not 0xD800 <= code < 0xE000]
    paragraphs = ("".join(f"{character}a " for character in characters), "STRASSE", "straße \u2003 İΣ")
    document = prepare_documents([SourceDocument("d", "", paragraphs)])[0]
    assert document.key == duplicate_key(" ".join(map(clean, paragraphs)))
    for paragraph, text in zip(document.paragraphs, map(clean, paragraphs), strict=True):
        assert (paragraph.key, paragraph.words) == (duplicate_key(text), len(text.split()))
