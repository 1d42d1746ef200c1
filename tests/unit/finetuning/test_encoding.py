"""Rows as token ids, and batches that waste little."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertline.finetuning.encoding import LengthSortedBatches, _kept_of_pair, encode_rows, scoring_batches
from bertline.tasks.storage import Rows
from bertline.tokenization.tokenizer import Tokenizer


@pytest.fixture
def tokenizer(encoder_folder):
    return Tokenizer.load(encoder_folder)


def rows(texts, pairs=None):
    return Rows([str(i) for i in range(len(texts))], texts, pairs, np.zeros(len(texts), dtype=np.int64))


def test_single_passages_and_pairs_are_laid_out_as_bert_does(tokenizer):
    cls, sep, pad = tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id
    one, two = tokenizer.encode("word1 word2")
    single = encode_rows(rows(["word1 word2", "word1"]), tokenizer, max_length=16)
    assert single.input_ids.tolist() == [[cls, one, two, sep], [cls, one, sep, pad]]
    assert single.token_type_ids.sum() == 0
    pair = encode_rows(rows(["word1", "word1 word2"], ["word2", "word1"]), tokenizer, max_length=16)
    assert pair.input_ids.tolist() == [[cls, one, sep, two, sep, pad], [cls, one, two, sep, one, sep]]
    assert pair.token_type_ids.tolist() == [[0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1]]


def test_a_special_piece_written_in_a_text_is_only_text(tokenizer):
    encoded = encode_rows(rows(["word1 [SEP] word2"]), tokenizer, max_length=16)
    assert (encoded.input_ids == tokenizer.sep_id).sum() == 1


def test_no_sequence_is_longer_than_allowed(tokenizer):
    text = " ".join(["word3"] * 30)
    for pairs in (None, [text]):
        encoded = encode_rows(rows([text], pairs), tokenizer, max_length=12)
        assert encoded.lengths.tolist() == [12]
        assert encoded.input_ids[0, -1] == tokenizer.sep_id


def reference_truncation(first, second, room):
    """One token at a time from the longer segment, as run_classifier.py does it."""
    while first + second > room:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


@given(st.integers(0, 80), st.integers(0, 80), st.integers(1, 70))
def test_pairs_give_way_as_in_the_reference_code(first, second, room):
    assert _kept_of_pair(first, second, room) == reference_truncation(first, second, room)


def test_every_pass_has_each_row_once_in_another_order(tokenizer, inputs):
    encoded = encode_rows(inputs.learnable_rows(100), tokenizer, max_length=16)
    batches = LengthSortedBatches(encoded, batch_size=8, seed=3)
    # A row is known by its ids without padding.
    passes = [[tuple(r[r > 0]) for batch in batches for r in batch["input_ids"].numpy()] for _ in range(2)]
    expected = sorted(tuple(row[:length]) for row, length in zip(encoded.input_ids, encoded.lengths, strict=True))
    assert sorted(passes[0]) == sorted(passes[1]) == expected
    assert passes[0] != passes[1]
    assert len(batches) == len(list(batches)) == 13


def test_the_order_is_a_function_of_the_seed(tokenizer, inputs):
    encoded = encode_rows(inputs.learnable_rows(60), tokenizer, max_length=16)

    def first_pass(seed):
        return [batch["input_ids"].tolist() for batch in LengthSortedBatches(encoded, batch_size=8, seed=seed)]

    assert first_pass(1) == first_pass(1)
    assert first_pass(1) != first_pass(2)


def test_length_sorted_batches_pad_less_than_random_ones(tokenizer, inputs):
    encoded = encode_rows(inputs.learnable_rows(256), tokenizer, max_length=16)
    padded = sum(batch["input_ids"].numel() for batch in LengthSortedBatches(encoded, batch_size=16, seed=0))
    order = np.random.default_rng(0).permutation(256).reshape(16, 16)
    unsorted = sum(encoded.batch(indices)["input_ids"].numel() for indices in order)
    assert padded < 1.1 * encoded.lengths.sum() < unsorted


def test_scoring_batches_cover_all_rows_and_know_their_places(tokenizer, inputs):
    encoded = encode_rows(inputs.learnable_rows(21), tokenizer, max_length=16)
    places = [index for indices, _ in scoring_batches(encoded, batch_size=8) for index in indices]
    assert sorted(places) == list(range(21))
