"""Full sentences in one segment."""

from __future__ import annotations

import dataclasses
import random
from itertools import pairwise
from pathlib import Path

import pytest

from bertline.examples.build import build_examples
from bertline.examples.config import ExamplesConfig
from bertline.examples.encoding import EncodedCorpus
from bertline.examples.generation import document_segments
from bertline.examples.masking import masked_batch, masking_policy, max_targets
from bertline.examples.store import ExampleStore
from bertline.foundation.files import sha256_of_path
from bertline.foundation.labels import IGNORED_LABEL
from encoded_corpora import encoded_corpus
from engines import local


def corpus_of(*documents: list[int]) -> EncodedCorpus:
    """Documents given by the lengths of their sentences; every token of the corpus is a different number."""
    token = iter(range(10**6))
    return encoded_corpus([[[next(token) for _ in range(n)] for n in lengths] for lengths in documents])


@pytest.fixture
def config(config: ExamplesConfig) -> ExamplesConfig:
    return dataclasses.replace(config, random_next_prob=None, short_sequence_prob=0.0)


@pytest.mark.parametrize("short", [0.0, 0.3, 1.0])
def test_every_token_of_a_document_is_taken_once_in_order(config: ExamplesConfig, short: float) -> None:
    rng, config = random.Random(3), dataclasses.replace(config, short_sequence_prob=short)
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


def test_the_artifact_has_one_segment_and_one_separator_per_sequence(
    corpus_folder: Path, tokenizer_folder: Path, tmp_path: Path, config: ExamplesConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for workers in (1, 2):
        headline = build_examples(
            config, tokenizer_folder, corpus_folder, tmp_path / str(workers), **local(tmp_path / str(workers), workers)
        )
    assert sha256_of_path(tmp_path / "1") == sha256_of_path(tmp_path / "2")
    assert "length_32/random_next_share" not in headline
    store = ExampleStore.open(tmp_path / "1", "train", 32)
    assert store.num_segments == 1
    assert store.num_tokens - 2 * len(store) == store.manifest["corpus"]["train"]["tokens"]
    for index in range(len(store)):
        example = store[index]
        assert example.input_ids[0] == 2 and example.input_ids[-1] == 3
        assert (example.input_ids == 3).sum() == 1
        assert not example.token_type_ids.any() and example.next_sentence_label == 0
    readable = (tmp_path / "1" / "readable-0032.txt").read_text()
    assert "  A: [CLS]" in readable and "  B: " not in readable


def test_a_full_sequence_has_room_for_all_its_targets(
    corpus_folder: Path, tokenizer_folder: Path, tmp_path: Path, config: ExamplesConfig
) -> None:
    """It has one special token fewer than a pair: at this rate one target more."""
    masking = dataclasses.replace(config.masking, mask_prob=0.99)
    config = dataclasses.replace(config, masking=masking, lengths=(16,))
    build_examples(config, tokenizer_folder, corpus_folder, tmp_path / "out", **local(tmp_path / "out"))
    store = ExampleStore.open(tmp_path / "out", "train", 16)
    policy = masking_policy(store.manifest)
    batch = masked_batch(store, range(len(store)), epoch=0, seed=0, policy=policy)
    found = (batch["masked_labels"] != IGNORED_LABEL).sum(axis=1)
    assert batch["masked_labels"].shape[1] == found.max() == max_targets(16, 0.99) + 1
