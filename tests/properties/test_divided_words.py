"""Divided words are found from their hyphens backwards: the same ones as by reading all text with the pattern."""

from __future__ import annotations

from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st

from bertline.corpus.quality.cleaning import _BROKEN, _WORD, broken_words, count_forms, divided_words, wanted_forms

TEXTS = st.text(alphabet="abÉßİ1_-\u2010\u00ad. \n\t\u00a0\u0301", max_size=60)


@given(TEXTS)
@example("a-b- ab- bb -\nab")
@example("1a- bb _b-\n bb")
@example("ab- ba- ab")
def test_the_same_words_are_found_as_by_the_pattern_alone(text: str) -> None:
    assert [found.span() for found in broken_words(text)] == [found.span() for found in _BROKEN.finditer(text)]


@given(st.lists(TEXTS, max_size=5))
def test_the_same_words_are_counted_as_one_by_one(texts: list[str]) -> None:
    wanted = wanted_forms(pair for text in texts for pair in divided_words(text)) | {"ab", "a-b", "i", "ss"}
    words = Counter(word for text in texts for word in _WORD.findall(_BROKEN.sub(" ", text).casefold()))
    assert count_forms(texts, frozenset(wanted)) == {word: count for word, count in words.items() if word in wanted}
