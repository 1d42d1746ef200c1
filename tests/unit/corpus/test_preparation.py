from __future__ import annotations

import unicodedata

import pytest

from bertline.corpus.preparation import clean


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
