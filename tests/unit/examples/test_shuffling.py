"""Sentences of a document in random order (`examples.shuffle_sentences`)."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from bertline.corpus.document import Document
from bertline.examples.build import build_examples
from bertline.examples.config import ExamplesConfig
from bertline.examples.generation import shuffled
from bertline.examples.store import ExampleStore
from bertline.tokenization.tokenizer import Tokenizer


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


def test_the_order_follows_from_the_seed_and_the_document() -> None:
    first = shuffled(document(40), together=2, seed=0)
    assert first == shuffled(document(40), together=2, seed=0)
    others = (shuffled(document(40), together=2, seed=1), shuffled(document(40, "b"), together=2, seed=0))
    assert all(first.sentences != other.sentences for other in (document(40), *others))
    assert shuffled(document(40), together=40, seed=0) == document(40)


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
        build_examples(changed, tokenizer_folder, corpus, folder, num_workers=1)
        assert json.loads((folder / "manifest.json").read_text()).get("shuffle_sentences") == together
        store = ExampleStore.open(folder, "train", 16)
        examples = [store[index] for index in range(len(store))]
        distances[together] = [abs(int(one.input_ids[1]) - int(one.input_ids[-2])) for one in examples]
    assert max(distances[None]) <= 3 < sorted(distances[1])[len(distances[1]) // 2]
