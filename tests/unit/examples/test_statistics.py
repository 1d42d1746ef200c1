"""Counts, and the line that the loss must fall below."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bertline.examples.build import build_examples, target_counts, unigram_entropy
from bertline.examples.config import ExamplesConfig
from bertline.examples.masking import mask_example, masking_policy
from bertline.examples.store import ExampleStore, token_counts


def test_it_is_the_entropy_of_the_source_if_train_and_validation_agree() -> None:
    probabilities = np.array([0.0, 0.5, 0.25, 0.25])
    counts = probabilities * 4_000_000
    expected = -(probabilities[1:] * np.log(probabilities[1:])).sum()
    assert unigram_entropy(counts, counts, special_ids=[0]) == pytest.approx(expected, abs=1e-5)


def test_counts_are_those_of_the_examples_one_by_one(
    corpus_folder: Path, tokenizer_folder: Path, tmp_path: Path, config: ExamplesConfig
) -> None:
    build_examples(config, tokenizer_folder, corpus_folder, tmp_path / "examples", num_workers=1)
    store = ExampleStore.open(tmp_path / "examples", "validation", 16)
    policy = masking_policy(store.manifest)
    tokens = np.zeros(policy.vocab_size, dtype=int)
    targets = np.zeros(policy.vocab_size, dtype=int)
    for index in range(len(store)):
        example = store[index]
        np.add.at(tokens, example.input_ids, 1)
        np.add.at(targets, mask_example(example, seed=5, epoch=0, example_id=index, policy=policy).masked_labels, 1)
    assert token_counts(store, policy.vocab_size).tolist() == tokens.tolist()
    assert target_counts(store, seed=5, policy=policy).tolist() == targets.tolist()
