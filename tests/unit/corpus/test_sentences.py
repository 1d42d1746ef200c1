from __future__ import annotations

import pytest

from bertline.corpus.sentences import split_sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["It rained.", "We stayed."],
        ["Dr. Smith met Mrs. Jones at St. Mary's church.", "They spoke."],
        ["He lives with J. R. R. Tolkien and George W. Bush.", "Nobody knows."],
        ["The value is 3.14 in version 2.0.1 of numpy.linalg.", "See Fig. 2 and Sec. 4 for more."],
        ["Use a copy, e.g. Python's own, i.e. The one below."],
        ["It takes apples, pears, etc. and more.", "Bananas, etc.", "The end."],
        ['"Come here!" he cried.', '"Why?"', "She left."],
        ["Samples are drawn from X.", "For large n it is slow."],
        ["So am I.", "You too?", "Yes!"],
        ["He said no.", "It was No. 5 in the list."],
        ["It opens at 9 a.m. on weekdays.", "It closes late."],
        ["Wait ... what was that?", "Nothing."],
        ["(This is aside.)", "That is not."],
        ["1. Install the package."],
        ["It was founded on Jan. 5, 1990.", "It closed in Dec.", "Nobody came."],
        ["No punctuation at all"],
        ["Él llegó tarde.", "¿Por qué?", "Élan is a word."],
    ],
)
def test_a_paragraph_splits_into_its_sentences(sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences)) == sentences


def test_chinese_and_japanese_sentences_need_no_space() -> None:
    assert split_sentences("今天下雨。我们在家。真的吗？") == ["今天下雨。", "我们在家。", "真的吗？"]
