"""Marks of matches within a pair: which tokens get them, and what they change for an encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import finetuning_inputs as inputs
from bertline.demo.config import DocsMatchSourceConfig
from bertline.encoders.loading import load_encoder
from bertline.encoding.sequences import encode_texts
from bertline.encoding.token_marks import NUM_MATCHES, SAME_TOKEN, add_marked_types, with_shared_marked
from bertline.finetuning.finetune import fine_tune
from bertline.kinds.classification import Classification
from bertline.tasks.stored_rows import TextRows
from bertline.tokenization.tokenizer import Tokenizer
from tiny import WORDS, write_vocabulary

PAIRS = DocsMatchSourceConfig(kind="docs_match", min_words=1, num_dev_rows=1, num_test_rows=1)
NAMES = ("alpha", "bravo", "cedar", "delta", "ember", "fjord")  # no two have a stem in common
WORD_LISTS = st.lists(st.sampled_from([*NAMES, "unheard"]), max_size=12)
PARTS = ("remove", "##key", "##bind", "##ings", "key", "bind", "##ing", "sort", "##ed", "sorts", "is", "this")
MORE_PARTS = ("return", "returns", "数", "据", "字")


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("vocabulary")
    write_vocabulary(folder, (*NAMES, *PARTS, *MORE_PARTS))
    return Tokenizer.load(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return inputs.write_encoder(tmp_path_factory.mktemp("encoder"))


@given(rows=st.lists(st.tuples(WORD_LISTS, WORD_LISTS), min_size=1, max_size=5))
@settings(max_examples=60)
def test_exactly_the_known_words_of_both_texts_are_the_same_tokens(
    words: Tokenizer, rows: list[tuple[list[str], list[str]]]
) -> None:
    first, second = ([" ".join(side) for side in sides] for sides in zip(*rows, strict=True))
    plain = encode_texts(first, second, words, max_length=32)
    marked = with_shared_marked(plain, words)
    for row, (one, other) in enumerate(rows):
        shared = {word for word in set(one) & set(other) if word != "unheard"}
        for place, token in enumerate(words.tokens(plain.input_ids[row].tolist())):
            expected = plain.token_type_ids[row, place] + (2 * SAME_TOKEN if token in shared else 0)
            assert marked.token_type_ids[row, place] == expected
    assert (marked.input_ids == plain.input_ids).all()


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("removekeybindings", "this key binding sorts", "0 2 2 0 | 0 2 2 2 0"),  # parts of a word
        ("sorted is", "sorts this", "2 0 0 | 2 0"),  # a stem; two characters say nothing
        ("return", "returns return", "1 | 2 1"),
        ("数据", "字数", "1 0 | 0 1"),  # one character, but a token
    ],
)
def test_parts_and_stems_of_words_are_partial_matches(words: Tokenizer, first: str, second: str, expected: str) -> None:
    plain = encode_texts([first], [second], words, max_length=32)
    marks = (with_shared_marked(plain, words).token_type_ids - plain.token_type_ids)[0] // 2
    of_first, of_second = (part.split() for part in expected.split("|"))
    assert marks.tolist() == [0, *map(int, of_first), 0, *map(int, of_second), 0]


def test_at_first_an_encoder_computes_of_marked_texts_what_it_computes_of_plain_ones(folder: Path) -> None:
    tokenizer = Tokenizer.load(folder)
    plain = encode_texts([" ".join(WORDS[:5])], [" ".join(WORDS[3:8])], tokenizer, max_length=24)
    marked = with_shared_marked(plain, tokenizer)
    encoder, grown = load_encoder(folder).eval(), load_encoder(folder).eval()
    add_marked_types(grown, NUM_MATCHES)
    expected, found = (
        model(*(batch[name] for name in ("input_ids", "token_type_ids", "attention_mask"))).hidden_states
        for model, batch in ((encoder, plain.batch(np.array([0]))), (grown, marked.batch(np.array([0]))))
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert grown.config.type_vocab_size == 6


def test_marks_let_a_tiny_encoder_learn_what_overlap_alone_tells(folder: Path, job_of: Any) -> None:
    train, dev = _overlapping_rows(320, seed=1), _overlapping_rows(120, seed=2)
    kinds = {shared: Classification(_task(shared), inputs.LABELS) for shared in ("plain", "marked")}
    scores = {
        shared: fine_tune(job_of(kind, folder, train, dev, num_epochs=4, dropout_prob=0.0)).dev.scores["accuracy"]
        for shared, kind in kinds.items()
    }
    assert scores["marked"] > 0.9
    assert scores["plain"] < 0.75


def _task(shared: str) -> Any:
    return inputs.task(source=PAIRS, shared_tokens=shared, max_length=24)


def _overlapping_rows(num_rows: int, *, seed: int) -> TextRows:
    """Pairs of three words each, of all words alike; the label says whether they share one."""
    random = np.random.default_rng(seed)
    first, second, labels = [], [], np.arange(num_rows) % 2
    for label in labels:
        words = random.permutation(len(WORDS))[:6]
        others = [words[0], *words[4:]] if label else words[3:]
        first.append(" ".join(WORDS[word] for word in words[:3]))
        second.append(" ".join(WORDS[word] for word in random.permutation(others)))
    return TextRows([str(row) for row in range(num_rows)], first, second, labels.astype(np.int64))


def test_types_that_an_encoder_has_stay_as_they_are(folder: Path) -> None:
    encoder = load_encoder(folder)
    add_marked_types(encoder, 1)
    with torch.no_grad():
        encoder.embeddings.token_type_embeddings.weight[2:] += 1.0
    learned = encoder.embeddings.token_type_embeddings.weight.clone()
    add_marked_types(encoder, 2)
    found = encoder.embeddings.token_type_embeddings.weight
    torch.testing.assert_close(found, torch.cat([learned, learned[:2]]), rtol=0, atol=0)
