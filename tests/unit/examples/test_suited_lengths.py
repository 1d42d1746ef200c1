"""Lengths that suit a text."""

from __future__ import annotations

import random

import pytest

from bertline.examples.bounds import suited_lengths

WORD = "word "


@pytest.mark.parametrize(
    ("words", "sentences", "longest", "expected"),
    [
        (20, 400, 512, (128, 512)),  # novels
        (20, 8, 512, (128, 256)),  # news in brief
        (6, 1, 512, (32, 32)),  # chat: one length
        (60, 300, 512, (256, 512)),  # statutes
        (60, 300, 128, (128, 128)),  # a model with few positions
    ],
)
def test_a_short_sequence_holds_two_sentences_and_a_long_one_most_documents(
    words: int, sentences: int, longest: int, expected: tuple[int, int]
) -> None:
    generator = random.Random(0)
    documents = [[(WORD * generator.randint(words // 2, words)).strip() for _ in range(sentences)] for _ in range(30)]
    assert suited_lengths(documents, longest=longest) == expected
