"""Words as tokens: the first token of each is found again, and each is predicted from one window."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertTokenizerFast

import tiny
from bertline.encoding.word_windows import encode_words
from bertline.foundation.errors import DataError
from bertline.foundation.labels import IGNORED_LABEL
from bertline.tasks.stored_rows import TaggedRows
from bertline.tokenization.tokenizer import Tokenizer

LABELS = ("O", "B-A", "I-A")
TOKENS = ("a", "b", "##a", "##b", "##ab", "word", "##word", "[", "]", "sep", "mask", "'", "中", "e")
# Some become several tokens, some [UNK], some two words for BERT; of one, cleaning removes a part.
WORDS = ("a", "ab", "abab", "wordword", "Word", "zz", "a'b", "[SEP]", "[MASK]", "中a", "é", "a\u200b")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary")
    tiny.write_vocabulary(path, TOKENS)
    return path


@pytest.fixture(scope="module")
def tokenizer(folder):
    return Tokenizer.load(folder)


def rows(*sentences, tags=None):
    words = [list(sentence) for sentence in sentences]
    names = [str(number) for number in range(len(words))]
    return TaggedRows(names, names, words, tags or [["O"] * len(sentence) for sentence in words])


def tokens_of(encoded, window):
    return encoded.sequences.input_ids[window, : encoded.sequences.lengths[window]].tolist()


@given(words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=12))
def test_tokens_and_beginnings_are_those_of_transformers(folder, tokenizer, words):
    reference = BertTokenizerFast.from_pretrained(folder)
    expected = reference(words, is_split_into_words=True, split_special_tokens=True)
    encoded = encode_words(rows(words), LABELS, tokenizer, max_length=200, overlap=4)
    assert tokens_of(encoded, 0) == expected["input_ids"]
    of_words = expected.word_ids()
    begins = {word: of_words.index(word) for word in of_words if word is not None}
    found = zip(encoded.words[0], encoded.places[0][: encoded.num_words[0]], strict=False)
    assert dict(found) == begins and len(begins) == len(words)


@given(
    sentences=st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=20), min_size=1, max_size=3),
    max_length=st.integers(5, 12),
    overlap=st.integers(0, 2),
)
def test_each_word_is_predicted_from_one_window_and_is_what_stands_there(tokenizer, sentences, max_length, overlap):
    encoded = encode_words(rows(*sentences), LABELS, tokenizer, max_length=max_length, overlap=overlap)
    assert encoded.sequences.lengths.max() <= max_length
    inside = np.arange(encoded.words.shape[1]) < encoded.num_words[:, None]
    assert sorted(encoded.words[encoded.taken]) == list(range(encoded.row_starts[-1]))
    assert not encoded.taken[~inside].any()
    first_tokens = [tokenizer.encode_literally([word])[0][0] for words in sentences for word in words]
    for window, place in zip(*np.nonzero(inside), strict=True):
        token = encoded.sequences.input_ids[window, encoded.places[window, place]]
        assert token == first_tokens[encoded.words[window, place]]
        assert encoded.places[window, place] >= 1  # [CLS] is no word


def test_windows_share_what_is_asked_for_and_a_word_is_taken_where_it_sees_most(tokenizer):
    encoded = encode_words(rows(["a"] * 10), LABELS, tokenizer, max_length=8, overlap=4)  # 6 tokens a window
    words = [encoded.words[window, : encoded.num_words[window]].tolist() for window in range(3)]
    assert words == [[0, 1, 2, 3, 4, 5], [2, 3, 4, 5, 6, 7], [4, 5, 6, 7, 8, 9]]
    taken = [encoded.words[window][encoded.taken[window]].tolist() for window in range(3)]
    # The row's own ends hide nothing: word 0 sees all there is on its left, word 9 on its right.
    assert taken == [[0, 1, 2, 3], [4, 5], [6, 7, 8, 9]]


@given(
    words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=20),
    max_length=st.integers(6, 12),
    overlap=st.integers(0, 3),
)
def test_a_word_is_cut_where_it_is_taken_only_if_no_window_holds_all_of_it(tokenizer, words, max_length, overlap):
    encoded = encode_words(rows(words), LABELS, tokenizer, max_length=max_length, overlap=overlap)
    num_tokens = [len(tokens) for tokens in tokenizer.encode_literally(words)]
    seen: dict[int, list[int]] = {}
    taken: dict[int, int] = {}
    for window, column in zip(*np.nonzero(np.arange(encoded.words.shape[1]) < encoded.num_words[:, None]), strict=True):
        word, count = encoded.words[window, column], np.count_nonzero(encoded.words_of_tokens[window] == column)
        seen.setdefault(word, []).append(count)
        if encoded.taken[window, column]:
            taken[word] = count
    assert all(taken[word] == num_tokens[word] or num_tokens[word] not in seen[word] for word in seen)


def test_labels_stand_with_their_words_and_padding_has_none(tokenizer):
    tagged = rows(["a", "abab"], ["b"], tags=[["B-A", "I-A"], ["I-A"]])
    batch = encode_words(tagged, LABELS, tokenizer, max_length=16, overlap=0).batch(np.array([0, 1]))
    assert batch["word_labels"].tolist() == [[1, 2], [2, IGNORED_LABEL]]
    assert batch["word_places"].tolist() == [[1, 2], [1, 0]]
    assert batch["num_words"].tolist() == [2, 1]


def test_a_word_longer_than_a_window_is_read_from_its_beginning(tokenizer):
    encoded = encode_words(rows(["b", "a" + "b" * 20, "a"]), LABELS, tokenizer, max_length=8, overlap=2)
    assert sorted(encoded.words[encoded.taken]) == [0, 1, 2]
    # Windows inside the word hold the beginning of none.
    assert 0 in encoded.num_words


def test_rows_without_words_are_empty_windows(tokenizer):
    encoded = encode_words(rows([], ["a"], []), LABELS, tokenizer, max_length=8, overlap=2)
    assert encoded.sequences.lengths.tolist() == [2, 3, 2]
    assert encoded.row_starts.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(("word", "shown"), [("\x00", r"'\x00'"), ("\u200b", r"'\u200b'"), ("\xa0", r"'\xa0'")])
def test_a_word_without_tokens_is_an_error_that_names_row_and_word(tokenizer, word, shown):
    with pytest.raises(DataError) as refused:
        encode_words(rows(["a"], ["a", "ab", word]), LABELS, tokenizer, max_length=8, overlap=2)
    assert str(refused.value).startswith(f"1: word 3 of 3, {shown}, has no token")


@given(sentences=st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=12), min_size=1, max_size=4))
def test_tokens_know_their_words_and_have_their_marks(tokenizer, sentences):
    encoded = encode_words(
        rows(*sentences), LABELS, tokenizer, max_length=8, overlap=2, mark=lambda word: WORDS.index(word) % 3
    )
    plain = encode_words(rows(*sentences), LABELS, tokenizer, max_length=8, overlap=2)
    all_words = [word for words in sentences for word in words]
    marks = (encoded.sequences.token_type_ids - plain.sequences.token_type_ids) // 2
    for window, places in enumerate(encoded.places):
        begins = places[: encoded.num_words[window]].tolist()
        for place in range(encoded.sequences.input_ids.shape[1]):
            column = encoded.words_of_tokens[window, place]
            is_of_word = begins and begins[0] <= place < encoded.sequences.lengths[window] - 1
            assert column == (sum(begin <= place for begin in begins) - 1 if is_of_word else -1)
            word = all_words[encoded.words[window, column]]
            assert marks[window, place] == (WORDS.index(word) % 3 if is_of_word else 0)


def test_windows_that_would_never_get_on_are_refused():
    with pytest.raises(ValueError, match="window_overlap"):
        tiny.tagging_task(max_length=8, window_overlap=6)
