from __future__ import annotations

import time

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


def test_empty_text_has_no_sentences() -> None:
    assert split_sentences("") == []


@pytest.mark.parametrize("text", ["Dr. " * 50_000, "a. b " * 50_000, "." * 200_000, '"(' * 100_000, "x" * 500_000])
def test_time_grows_with_length_and_not_with_its_square(text: str) -> None:
    started = time.thread_time()  # of the processor: other processes do not count
    split_sentences(text)
    assert time.thread_time() - started < 20
