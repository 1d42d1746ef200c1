"""Readers of text that anything may be in: nothing is lost, nothing crashes, the same comes out twice."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from bertline.corpus.document import clean, duplicate_key
from bertline.corpus.sentences.learned import LearnedSplitter, counts_of_words, learn
from bertline.demo.docstrings import group_of, is_held_out
from bertline.demo.prose import prose_paragraphs

WORDS = st.lists(st.sampled_from(["Dr.", "a.", "The", "end.", '"No!"', "e.g.", "3.5", "(See", "X.", "it)", "…", "?"]))
DOCSTRING_LINES = st.lists(
    st.sampled_from(
        ["", "Args:", "    x (int): The number", "Parameters", "----------", "x : int", "    deeper text goes here",
         ">>> f()", "1", ".. note::", ".. code::", "    code = 1", ":param x: what it is", "- item one", "===  ===",
         "Example::", "See Also", "plain words in a row", "        very deep words here", ":", "::", "*", "`", "[1]_"]
    )
)  # fmt: skip


@given(st.text())
def test_cleaning_twice_changes_nothing_more(text: str) -> None:
    cleaned = clean(text)
    assert clean(cleaned) == cleaned
    assert unicodedata.is_normalized("NFC", cleaned)
    assert "\n" not in cleaned
    cleaned.encode()


_MARKS = 'ბআ।።։۔؟。.!?…:; )"’a漢Aաα1§-*'


@given(st.text(_MARKS) | WORDS.map(" ".join), st.lists(st.text("abX.! ")))
def test_learned_sentences_hold_the_text_and_none_is_empty(text: str, read: list[str]) -> None:
    splitter = LearnedSplitter.of(learn(counts_of_words(map(clean, read))))
    for part in (text, *read):
        cleaned = clean(part)
        sentences = splitter.split(cleaned)
        assert "".join(sentences).replace(" ", "") == cleaned.replace(" ", "")
        assert all(sentence == sentence.strip() != "" for sentence in sentences)


@given(st.lists(st.text("abX.!1 "), max_size=8), st.integers(0, 8))
def test_counts_of_parts_add_up_in_any_cut(texts: list[str], cut: int) -> None:
    total, other = counts_of_words(texts[:cut]), counts_of_words(texts[cut:])
    swapped = counts_of_words(texts[cut:])
    swapped.add(counts_of_words(texts[:cut]))
    total.add(other)
    assert learn(total) == learn(swapped)


@given(st.text() | DOCSTRING_LINES.map("\n".join))
def test_prose_of_anything_is_clean_lines(text: str) -> None:
    found = prose_paragraphs(text)
    assert all(paragraph == " ".join(paragraph.split()) != "" for paragraph in found.paragraphs)
    assert all(count > 0 for count in found.dropped.values())


_NAMES = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=5).map(lambda parts: ".".join(["p", *parts]))


@given(st.sets(_NAMES), st.sets(_NAMES), st.floats(0.01, 0.99), st.integers())
def test_modules_that_come_and_go_move_no_other(before: set[str], after: set[str], fraction: float, seed: int) -> None:
    def split(modules: set[str]) -> dict[str, bool]:
        return {
            module: is_held_out(group_of(module, package="p"), package="p", fraction=fraction, seed=seed)
            for module in modules
        }

    first, second = split(before), split(after)
    assert {module: first[module] for module in before & after} == {module: second[module] for module in before & after}
    deeper = split({f"{module}.{more}" for module in before for more in ("x", "y.z") if module.count(".") >= 2})
    assert all(
        held_out == first[module[: module.rindex(".x")]] for module, held_out in deeper.items() if ".x" in module
    )


@given(st.text(), st.text())
def test_keys_are_equal_exactly_for_equal_folded_words(first: str, second: str) -> None:
    same = clean(first).casefold().split() == clean(second).casefold().split()
    assert (duplicate_key(clean(first)) == duplicate_key(clean(second))) == same
