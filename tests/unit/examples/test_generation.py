"""Sentence pairs, and blocks of examples."""

from __future__ import annotations

import dataclasses
import json
import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertline.corpus.document import Document
from bertline.examples.build import build_examples
from bertline.examples.config import ExamplesConfig
from bertline.examples.encoding import EncodedCorpus, shuffled
from bertline.examples.generation import (
    Pair,
    Span,
    _truncated,
    assemble,
    blocks_of_documents,
    document_pairs,
    generate_pairs,
)
from bertline.examples.store import ExampleStore
from bertline.tokenization.tokenizer import Layout, Tokenizer
from encoded_corpora import encoded_corpus
from engines import local


def test_blocks_are_the_shards_in_order_all_of_one_copy_before_the_next() -> None:
    corpus = encoded_corpus([[[1] * 3]] * 2, [[[1] * 9]] * 3, [[[1] * 4]])
    blocks = [(block.copy, list(block.documents)) for block in blocks_of_documents(corpus, num_copies=2)]
    assert blocks == [(copy, documents) for copy in (0, 1) for documents in ([0, 1], [2, 3, 4], [5])]


def test_pairs_do_not_depend_on_the_shards_but_on_the_copy(tmp_path: Path, config: ExamplesConfig) -> None:
    rng = random.Random(3)
    lists = [[[7] * rng.randint(1, 20) for _ in range(rng.randint(1, 9))] for _ in range(60)]

    def pairs(corpus: EncodedCorpus, copies: int = 1) -> list[list[int]]:
        rows = []
        for block in blocks_of_documents(corpus, copies):
            generate_pairs(block, tmp_path, corpus=corpus, split="train", length=16, room=13, config=config)
            rows += np.load(tmp_path / "pairs.npy").tolist()
        return rows

    together = pairs(encoded_corpus(lists))
    assert together == pairs(encoded_corpus(lists[:7], [[[]]], lists[7:8], lists[8:]))
    first, second = (
        pairs(encoded_corpus(lists), 2)[part] for part in (slice(len(together)), slice(len(together), None))
    )
    assert first == together != second


@pytest.mark.parametrize(
    ("layout", "expected"),
    [(Layout((2,), (3,), (3,), 1), [2, 10, 11, 3, 12, 3]), (Layout((0,), (2, 2), (2,), 0), [0, 10, 11, 2, 2, 12, 2])],
)
def test_pairs_are_laid_out_as_the_tokenizer_does(layout: Layout, expected: list[int]) -> None:
    corpus, pairs = encoded_corpus([[[10, 11]]], [[[12]]]), np.array([[0, 2, 2, 3, 0]])
    assert assemble(corpus, pairs, layout).input_ids.tolist() == expected


def corpus_of(*documents: list[int]) -> EncodedCorpus:
    """Documents given by the lengths of their sentences; every token of the corpus is a different number."""
    token = iter(range(10**6))
    return encoded_corpus([[[next(token) for _ in range(n)] for n in lengths] for lengths in documents])


def pairs_of(
    corpus: EncodedCorpus, document: int, config: ExamplesConfig, length: int = 32, seed: int = 0
) -> list[Pair]:
    return list(document_pairs(corpus, document, random.Random(seed), room=length - 3, config=config))


@pytest.fixture
def always_next(config: ExamplesConfig) -> ExamplesConfig:
    return dataclasses.replace(config, random_next_prob=0.0, short_sequence_prob=0.0)


@pytest.fixture
def always_random(config: ExamplesConfig) -> ExamplesConfig:
    return dataclasses.replace(config, random_next_prob=1.0, short_sequence_prob=0.0)


@pytest.fixture
def varied() -> EncodedCorpus:
    rng = random.Random(3)
    return corpus_of(*([rng.randint(1, 40) for _ in range(rng.randint(1, 30))] for _ in range(300)))


def test_sentences_that_a_did_not_use_are_put_back_after_a_random_segment(always_random: ExamplesConfig) -> None:
    corpus = corpus_of([4, 4, 4, 4, 4, 4], [9, 9])
    for seed in range(20):
        segments = [pair.a for pair in pairs_of(corpus, 0, always_random, length=64, seed=seed)]
        assert segments[0].start == 0
        assert segments[-1].stop == 24
        assert all(left.stop == right.start for left, right in pairwise(segments))


@pytest.mark.parametrize("lengths", [(12, 12), (5, 40)])
def test_of_documents_of_one_sentence_both_kinds_of_pairs_are_cut_alike(
    config: ExamplesConfig, lengths: tuple[int, int]
) -> None:
    rng = random.Random(3)
    corpus = corpus_of(*([rng.randint(*lengths)] for _ in range(600)))
    starts = set(corpus.shard(0).sentence_starts.tolist())
    pairs = [pair for document in range(600) for pair in pairs_of(corpus, document, config, 64, seed=document)]

    assert {pair.next_sentence_label for pair in pairs} == {0, 1}
    assert not {pair.a.stop for pair in pairs} & starts, "A always ends inside a sentence"
    assert {pair.b.stop for pair in pairs} <= starts, "B always ends with one"
    own = [document[1] - document[0] for document in pairwise(corpus.shard(0).sentence_starts.tolist())]
    alike = [pair.a.length + pair.b.length == whole for pair, whole in zip(pairs, own, strict=True)]
    assert np.mean(alike) > 0.95, "and B is as long as what follows A"


def test_a_sentence_left_alone_is_cut_for_its_true_continuation(always_next: ExamplesConfig) -> None:
    cuts = set()
    for seed in range(60):
        [pair] = pairs_of(corpus_of([6], [5]), 0, always_next, seed=seed)
        assert (pair.a.start, pair.a.stop, pair.b.stop) == (0, pair.b.start, 6)
        cuts.add(pair.a.stop)
    assert cuts == {1, 2, 3, 4, 5}


def test_half_of_the_pairs_are_random_and_a_tenth_short(config: ExamplesConfig, varied: EncodedCorpus) -> None:
    pairs = [pair for document in range(300) for pair in pairs_of(varied, document, config, seed=document)]
    assert len(pairs) > 2000
    for hits, probability in (
        (sum(pair.next_sentence_label for pair in pairs), 0.5),
        (sum(pair.is_short for pair in pairs), 0.1),
    ):
        deviation = np.sqrt(len(pairs) * probability * (1 - probability))
        assert abs(hits - len(pairs) * probability) < 4 * deviation


def test_short_sequences_have_every_length_from_two_tokens_on(config: ExamplesConfig) -> None:
    always_short = dataclasses.replace(config, random_next_prob=0.0, short_sequence_prob=1.0)
    lengths = set()
    for seed in range(30):
        pairs = pairs_of(corpus_of([1] * 200, [5]), 0, always_short, length=16, seed=seed)
        assert all(pair.is_short for pair in pairs)
        lengths.update(pair.a.length + pair.b.length for pair in pairs)
    assert lengths == set(range(2, 14))


def reference_truncation(tokens_a: int, tokens_b: int, limit: int) -> tuple[int, int]:
    """Token by token from the longer one, B if they are equal: create_pretraining_data.py's rule for lengths."""
    while tokens_a + tokens_b > limit:
        if tokens_a > tokens_b:
            tokens_a -= 1
        else:
            tokens_b -= 1
    return tokens_a, tokens_b


@pytest.mark.parametrize("limit", [2, 9, 10, 29])
def test_truncation_leaves_the_lengths_that_cutting_token_by_token_does(limit: int) -> None:
    for length_a in range(1, 25):
        for length_b in range(1, 25):
            excess = max(0, length_a + length_b - limit)
            a, b = _truncated(Span(0, length_a), Span(50, 50 + length_b), excess, random.Random(0))
            assert (a.length, b.length) == reference_truncation(length_a, length_b, limit)
            assert 0 <= a.start <= a.stop <= length_a
            assert 50 <= b.start <= b.stop <= 50 + length_b


def document(num_sentences: int, name: str = "a") -> Document:
    return Document(name, "group", tuple(f"sentence {number}." for number in range(num_sentences)))


@given(num_sentences=st.integers(1, 30), together=st.integers(1, 5), seed=st.integers(0, 9))
def test_every_sentence_stays_once_and_runs_stay_together(num_sentences: int, together: int, seed: int) -> None:
    before = document(num_sentences)
    after = shuffled(before, together=together, seed=seed)
    assert (after.id, after.group) == (before.id, before.group)
    assert sorted(after.sentences) == sorted(before.sentences)
    places = {sentence: place for place, sentence in enumerate(after.sentences)}
    for start in range(0, num_sentences, together):
        run = [places[sentence] for sentence in before.sentences[start : start + together]]
        assert run == list(range(run[0], run[0] + len(run)))


def test_segments_of_a_pair_come_from_anywhere_in_the_document(
    corpus_of, tokenizer_folder: Path, tmp_path: Path, config: ExamplesConfig
) -> None:
    words = Tokenizer.load(tokenizer_folder).vocab[5:]
    texts = [[f"{word} {word} {word} {word}" for word in words[:40]]]  # a sentence of 4 times the same word
    corpus = corpus_of(texts, texts)
    pairs = dataclasses.replace(config, lengths=(16,), random_next_prob=0.0, short_sequence_prob=0.0)
    distances = {}
    for together in (None, 1):
        folder = tmp_path / str(together)
        changed = dataclasses.replace(pairs, shuffle_sentences=together)
        build_examples(changed, tokenizer_folder, corpus, folder, **local(folder))
        assert json.loads((folder / "manifest.json").read_text()).get("shuffle_sentences") == together
        store = ExampleStore.open(folder, "train", 16)
        examples = [store[index] for index in range(len(store))]
        distances[together] = [abs(int(one.input_ids[1]) - int(one.input_ids[-2])) for one in examples]
    assert max(distances[None]) <= 3 < sorted(distances[1])[len(distances[1]) // 2]
