"""Rows as token ids, and batches that waste little."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bertline.encoding.sequences import encode_texts, encode_windows, kept_of_pair, length_sorted_batches
from bertline.kinds.classification import EncodedTexts


def test_single_passages_and_pairs_are_laid_out_as_bert_does(tokenizer):
    cls, sep, pad = tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id
    one, two = tokenizer.encode("word1 word2")
    single = encode_texts(["word1 word2", "word1"], None, tokenizer, max_length=16)
    assert single.input_ids.tolist() == [[cls, one, two, sep], [cls, one, sep, pad]]
    assert single.token_type_ids.sum() == 0
    pair = encode_texts(["word1", "word1 word2"], ["word2", "word1"], tokenizer, max_length=16)
    assert pair.input_ids.tolist() == [[cls, one, sep, two, sep, pad], [cls, one, two, sep, one, sep]]
    assert pair.token_type_ids.tolist() == [[0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1]]


def test_a_special_token_written_in_a_text_is_only_text(tokenizer):
    encoded = encode_texts(["word1 [SEP] word2"], None, tokenizer, max_length=16)
    assert (encoded.input_ids == tokenizer.sep_id).sum() == 1


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
    assert kept_of_pair(first, second, room) == reference_truncation(first, second, room)


def test_every_pass_has_each_row_once_in_another_order(tokenizer, inputs):
    encoded = encode_texts(inputs.learnable_rows(100).texts, None, tokenizer, max_length=16)
    batches = length_sorted_batches(encoded.lengths, encoded.batch, batch_size=8, seed=3)
    # A row is known by its ids without padding.
    passes = [[tuple(r[r > 0]) for batch in batches for r in batch["input_ids"].numpy()] for _ in range(2)]
    expected = sorted(tuple(row[:length]) for row, length in zip(encoded.input_ids, encoded.lengths, strict=True))
    assert sorted(passes[0]) == sorted(passes[1]) == expected
    assert passes[0] != passes[1]
    assert len(batches) == len(list(batches)) == 13


def test_length_sorted_batches_pad_less_than_random_ones(tokenizer, inputs):
    encoded = encode_texts(inputs.learnable_rows(256).texts, None, tokenizer, max_length=16)
    padded = sum(
        batch["input_ids"].numel()
        for batch in length_sorted_batches(encoded.lengths, encoded.batch, batch_size=16, seed=0)
    )
    order = np.random.default_rng(0).permutation(256).reshape(16, 16)
    unsorted = sum(encoded.batch(indices)["input_ids"].numel() for indices in order)
    assert padded < 1.1 * encoded.lengths.sum() < unsorted


def ids_of(encoded, index):
    return encoded.input_ids[index, : encoded.lengths[index]].tolist()


def test_what_fits_is_encoded_in_windows_as_without(tokenizer, inputs):
    rows = inputs.learnable_rows(40)
    whole = encode_texts(rows.texts, None, tokenizer, max_length=24)
    windows = EncodedTexts(*encode_windows(rows.texts, tokenizer, max_length=24, overlap=4), np.zeros(0))
    assert windows.row_starts.tolist() == windows.row_of.tolist() == list(range(40))
    for name in ("input_ids", "token_type_ids", "lengths"):
        assert (getattr(whole, name) == getattr(windows.sequences, name)).all()


@given(lengths=st.lists(st.integers(0, 60), min_size=1, max_size=5), max_length=st.integers(6, 20), data=st.data())
def test_windows_cover_a_text_and_share_their_overlap(tokenizer, lengths, max_length, data):
    overlap = data.draw(st.integers(0, max_length - 3))
    texts = [" ".join(f"word{place % 40}" for place in range(length)) for length in lengths]
    windows = EncodedTexts(*encode_windows(texts, tokenizer, max_length=max_length, overlap=overlap), np.zeros(0))
    assert windows.sequences.lengths.max() <= max_length
    assert windows.num_windows.sum() == len(windows.sequences)
    for row, text in enumerate(texts):
        chunks = [ids_of(windows.sequences, index)[1:-1] for index in np.flatnonzero(windows.row_of == row)]
        read = chunks[0]
        for before, chunk in itertools.pairwise(chunks):
            assert before[len(before) - overlap :] == chunk[:overlap]
            assert len(chunk) > overlap
            read = read + chunk[overlap:]
        assert read == tokenizer.encode(text)
        assert len(chunks) == 1 or len(chunks[0]) == max_length - 2
