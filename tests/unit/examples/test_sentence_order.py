"""Pairs of consecutive segments, some of which have changed places."""

from __future__ import annotations

import dataclasses
import random
import re
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertline.examples.build import build_examples
from bertline.examples.config import ExamplesConfig
from bertline.examples.generation import document_pairs
from bertline.examples.store import ExampleStore
from bertline.foundation.errors import DataError
from bertline.foundation.files import sha256_of_path
from bertline.foundation.manifests import read_manifest
from encoded_corpora import encoded_corpus
from engines import local


@pytest.fixture
def config(config: ExamplesConfig) -> ExamplesConfig:
    return dataclasses.replace(config, random_next_prob=0.0, swapped_prob=0.5)


def pairs_of_a_plain_loop(lengths: list[int], room: int, rng: random.Random, config: ExamplesConfig) -> list[tuple]:
    """Tokens of A and B before truncation, and the label, of a document whose tokens are numbered."""
    starts = np.concatenate([[0], np.cumsum(lengths)]).tolist()
    sentences = [list(range(*bounds)) for bounds in pairwise(starts)]
    pairs = []
    while len(sentences) >= 2:
        target = 2 + int(rng.random() * (room - 1)) if rng.random() < config.short_sequence_prob else room
        chunk = [sentences.pop(0)]
        while sentences and (len(chunk) < 2 or sum(map(len, chunk)) < target):
            chunk.append(sentences.pop(0))
        rng.random()  # whether the next segment is a random one: never
        cut = 1 + int(rng.random() * (len(chunk) - 1))
        first, second = list(chain(*chunk[:cut])), list(chain(*chunk[cut:]))
        label = int(rng.random() < config.swapped_prob)
        pairs.append((second, first, label) if label else (first, second, label))
        if len(first) + len(second) > room:
            break  # what is cut off takes random numbers of its own
    return pairs


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=15),
    room=st.integers(6, 40),
    share=st.floats(0.01, 1),
    seed=st.integers(0, 2**32),
)
def test_pairs_are_those_of_a_plain_loop(
    config: ExamplesConfig, lengths: list[int], room: int, share: float, seed: int
) -> None:
    config = dataclasses.replace(config, swapped_prob=share)
    tokens = iter(range(10**6))
    corpus = encoded_corpus([[[next(tokens) for _ in range(length)] for length in lengths]])
    pairs = list(document_pairs(corpus, 0, random.Random(seed), room=room, config=config))
    expected = pairs_of_a_plain_loop(lengths, room, random.Random(seed), config)
    for pair, (a, b, label) in zip(pairs, expected, strict=False):
        found = (list(range(*pair.a)), list(range(*pair.b)))
        assert pair.next_sentence_label == label == int(found[0][0] > found[1][0])
        if pair.num_truncated:
            assert set(found[0]) < set(a) or set(found[1]) < set(b)
            assert len(found[0]) + len(found[1]) == room
        else:
            assert found == (a, b)
    assert len(pairs) >= len(expected)
    assert bool(pairs) == (len(lengths) > 1)


def test_the_artifact_has_the_labels_and_counts_documents_of_one_sentence(
    corpus_folder: Path, tokenizer_folder: Path, tmp_path: Path, config: ExamplesConfig
) -> None:
    for workers in (1, 2):
        headline = build_examples(
            config, tokenizer_folder, corpus_folder, tmp_path / str(workers), **local(tmp_path / str(workers), workers)
        )
    assert sha256_of_path(tmp_path / "1") == sha256_of_path(tmp_path / "2")
    manifest = read_manifest(tmp_path / "1", kind="examples", format_version=1)
    counts, facts = manifest["corpus"]["train"], manifest["lengths"]["32"]["train"]
    assert 0 < counts["documents/one_sentence"] < counts["documents"]
    store = ExampleStore.open(tmp_path / "1", "train", 32)
    labels = [store[index].next_sentence_label for index in range(len(store))]
    assert sum(labels) == facts["swapped"] and "random_next" not in facts
    assert 0.35 < headline["length_32/swapped_share"] == facts["swapped_share"] < 0.65
    assert "B is what A follows (label 1)" in (tmp_path / "1" / "readable-0032.txt").read_text()


def test_documents_of_one_sentence_are_refused(
    corpus_of, tokenizer_folder: Path, tmp_path: Path, config: ExamplesConfig
) -> None:
    corpus = corpus_of([["bal bel ."], ["bol bul ."], ["dal del ."]], [["bal ."], ["bel ."]])
    message = r"Each of the 3 documents of the train split has one sentence.*Join them.*objective=mlm"
    with pytest.raises(DataError, match=message):
        build_examples(config, tokenizer_folder, corpus, tmp_path / "out", **local(tmp_path / "out"))


def test_a_pair_has_one_label(config: ExamplesConfig) -> None:
    for other in (0.5, None):
        message = re.escape(
            f"swapped_prob is 0.5, which needs random_next_prob=0, because a pair has one label; found {other}"
        )
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(config, random_next_prob=other)
