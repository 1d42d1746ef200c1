"""The report on how well a vocabulary fits a text."""

from __future__ import annotations

import pytest

from bertline.tokenization.build import quality_report
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary

TOKENS = (*SPECIAL_TOKENS, "cat", "dog", "##s", "##house", "[", "]", "mask")


def test_rates_weight_each_word_by_its_count() -> None:
    tokenizer = Tokenizer(Vocabulary(tokens=TOKENS, lowercase=True))
    report = quality_report(tokenizer, {"cat": 5, "cats": 2, "doghouses": 1, "☃": 2})
    assert report["words"] == 10
    assert report["distinct_words"] == 4
    assert report["tokens_per_word"] == pytest.approx((5 * 1 + 2 * 2 + 1 * 3 + 2 * 1) / 10)
    assert report["whole_word_rate"] == pytest.approx(0.5)
    assert report["unknown_rate"] == pytest.approx(0.2)
    assert report["unknown_characters"] == {"☃": 2}
    assert report["sample"] == {"cats": "cat ##s", "doghouses": "dog ##house ##s"}


def test_no_words_give_zeros_not_a_division_by_zero() -> None:
    tokenizer = Tokenizer(Vocabulary(tokens=TOKENS, lowercase=True))
    assert quality_report(tokenizer, {})["unknown_rate"] == 0
