"""Sentence pairs, pairs whose segments change places, full sentences in one segment, and blocks of examples."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertline.corpus.document import Document
from bertline.examples.config import ExamplesConfig
from bertline.examples.encoding import EncodedCorpus, with_shuffled_sentences
from bertline.examples.generation import (
    Pair,
    Span,
    _truncated,
    blocks_of_documents,
    document_pairs,
    document_segments,
    generate_pairs,
)
from bertline.examples.masking import masked_batch, masking_policy, max_targets
from bertline.foundation.errors import DataError
from bertline.foundation.labels import IGNORED_LABEL
from corpora import write_corpus
from encoded_corpora import corpus_of, encoded_corpus


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
    twice = pairs(encoded_corpus(lists), 2)
    assert twice[: len(together)] == together != twice[len(together) :]


def pairs_of(
    corpus: EncodedCorpus, document: int, config: ExamplesConfig, length: int = 32, seed: int = 0
) -> list[Pair]:
    return list(document_pairs(corpus, document, random.Random(seed), room=length - 3, config=config))


def test_sentences_that_a_did_not_use_are_put_back_after_a_random_segment(config: ExamplesConfig) -> None:
    corpus = corpus_of([4, 4, 4, 4, 4, 4], [9, 9])
    config = replace(config, random_next_prob=1.0, short_sequence_prob=0.0)
    for seed in range(20):
        segments = [pair.a for pair in pairs_of(corpus, 0, config, length=64, seed=seed)]
        assert (segments[0].start, segments[-1].stop) == (0, 24)
        assert all(left.stop == right.start for left, right in pairwise(segments))


@pytest.mark.parametrize("lengths", [(12, 12), (5, 40)])
def test_of_documents_of_one_sentence_both_kinds_of_pairs_are_cut_alike(config, lengths) -> None:
    rng = random.Random(3)
    corpus = corpus_of(*([rng.randint(*lengths)] for _ in range(600)))
    starts = corpus.shard(0).sentence_starts.tolist()
    pairs = [pair for document in range(600) for pair in pairs_of(corpus, document, config, 64, seed=document)]

    assert {pair.next_sentence_label for pair in pairs} == {0, 1}
    assert not {pair.a.stop for pair in pairs} & set(starts), "A always ends inside a sentence"
    assert {pair.b.stop for pair in pairs} <= set(starts), "B always ends with one"
    alike = [pair.a.length + pair.b.length == size for pair, size in zip(pairs, np.diff(starts), strict=True)]
    assert np.mean(alike) > 0.95, "and B is as long as what follows A"


def test_half_of_the_pairs_are_random_and_a_tenth_short(config: ExamplesConfig) -> None:
    rng = random.Random(3)
    varied = corpus_of(*([rng.randint(1, 40) for _ in range(rng.randint(1, 30))] for _ in range(300)))
    pairs = [pair for document in range(300) for pair in pairs_of(varied, document, config, seed=document)]
    assert len(pairs) > 2000
    hits = {0.5: sum(pair.next_sentence_label for pair in pairs), 0.1: sum(pair.is_short for pair in pairs)}
    for probability, number in hits.items():
        deviation = np.sqrt(len(pairs) * probability * (1 - probability))
        assert abs(number - len(pairs) * probability) < 4 * deviation


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


@given(num_sentences=st.integers(1, 30), together=st.integers(1, 5), seed=st.integers(0, 9))
def test_every_sentence_stays_once_and_runs_stay_together(num_sentences: int, together: int, seed: int) -> None:
    before = Document("a", "group", tuple(f"sentence {number}." for number in range(num_sentences)))
    after = with_shuffled_sentences(before, together=together, seed=seed)
    assert (after.id, after.group) == (before.id, before.group)
    assert sorted(after.sentences) == sorted(before.sentences)
    places = {sentence: place for place, sentence in enumerate(after.sentences)}
    for start in range(0, num_sentences, together):
        run = [places[sentence] for sentence in before.sentences[start : start + together]]
        assert run == list(range(run[0], run[0] + len(run)))


class TestFullSentences:
    @pytest.fixture
    def config(self, config: ExamplesConfig) -> ExamplesConfig:
        return replace(config, random_next_prob=None, short_sequence_prob=0.0)

    @pytest.mark.parametrize("short", [0.0, 0.3, 1.0])
    def test_every_token_of_a_document_is_taken_once_in_order(self, config: ExamplesConfig, short: float) -> None:
        rng, config = random.Random(3), replace(config, short_sequence_prob=short)
        corpus = corpus_of(*([rng.randint(1, 80) for _ in range(rng.randint(1, 30))] for _ in range(100)))
        bounds = set(corpus.shard(0).sentence_starts.tolist())
        for document in range(100):
            first, *_, last = corpus.sentence_bounds(document)
            segments = document_segments(corpus, document, random.Random(document), room=30, config=config)
            spans = [segment.a for segment in segments]
            assert (spans[0].start, spans[-1].stop) == (first, last)
            assert all(left.stop == right.start for left, right in pairwise(spans))
            assert all(1 <= span.length <= 30 for span in spans)
            for span in spans:  # cut only inside a sentence that is longer than a sequence
                assert span.stop in bounds or span.length == 30

    def test_a_full_sequence_has_room_for_all_its_targets(self, build, config) -> None:
        """It has one special token fewer than a pair: at this rate one target more."""
        built = build(replace(config, masking=replace(config.masking, mask_prob=0.99), lengths=(16,)))
        store, readable = built.store(16), (built.folder / "readable-0016.txt").read_text()
        assert "  A: [CLS]" in readable and "  B: " not in readable
        assert "length_16/random_next_share" not in built.headline
        assert store.num_tokens - 2 * len(store) == store.manifest["corpus"]["train"]["tokens"]
        batch = masked_batch(store, range(len(store)), epoch=0, seed=0, policy=masking_policy(store.manifest))
        num_targets = (batch["masked_labels"] != IGNORED_LABEL).sum(axis=1)
        assert batch["masked_labels"].shape[1] == num_targets.max() == max_targets(16, 0.99) + 1


class TestSentenceOrder:
    @pytest.fixture
    def config(self, config: ExamplesConfig) -> ExamplesConfig:
        return replace(config, random_next_prob=0.0, swapped_prob=0.5)

    def test_the_artifact_has_the_labels_and_counts_documents_of_one_sentence(self, build, config) -> None:
        built = build(config)
        counts, facts = built.manifest["corpus"]["train"], built.manifest["lengths"]["32"]["train"]
        assert 0 < counts["documents/one_sentence"] < counts["documents"]
        assert sum(example.next_sentence_label for example in built.examples(32)) == facts["swapped"]
        assert 0.35 < built.headline["length_32/swapped_share"] == facts["swapped_share"] < 0.65
        assert "random_next" not in facts
        assert "B is what A follows (label 1)" in (built.folder / "readable-0032.txt").read_text()

    def test_documents_of_one_sentence_are_refused(self, build, config, tmp_path) -> None:
        corpus = write_corpus(tmp_path / "short", [["bal bel ."], ["bol bul ."], ["dal del ."]], [["bal ."], ["bel ."]])
        message = r"Each of the 3 documents of the train split has one sentence.*Join them.*objective=mlm"
        with pytest.raises(DataError, match=message):
            build(config, corpus=corpus)

    @pytest.mark.parametrize("other", [0.5, None])
    def test_a_pair_has_one_label(self, config: ExamplesConfig, other: float | None) -> None:
        message = re.escape(f"which needs random_next_prob=0, because a pair has one label; found {other}")
        with pytest.raises(ValueError, match=message):
            replace(config, random_next_prob=other)
