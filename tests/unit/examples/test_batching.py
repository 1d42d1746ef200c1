"""Batches: the fast way equals the plain way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bertline.examples.build import build_examples
from bertline.examples.config import ExamplesConfig
from bertline.examples.masking import MaskedExample, mask_example, masked_batch, masking_policy, max_targets
from bertline.examples.store import Array, ExampleStore
from bertline.foundation.labels import IGNORED_LABEL


def collate(examples: list[MaskedExample], *, max_length: int, max_targets: int, pad_id: int) -> dict[str, Array]:
    """Pad masked examples to the same shape, one by one."""
    size = len(examples)
    batch = {
        "input_ids": np.full((size, max_length), pad_id, dtype=np.int64),
        "token_type_ids": np.zeros((size, max_length), dtype=np.int64),
        "attention_mask": np.zeros((size, max_length), dtype=np.int64),
        "masked_positions": np.zeros((size, max_targets), dtype=np.int64),
        "masked_labels": np.full((size, max_targets), IGNORED_LABEL, dtype=np.int64),
        "next_sentence_labels": np.array([example.next_sentence_label for example in examples], dtype=np.int64),
    }
    for row, example in enumerate(examples):
        length, targets = len(example.input_ids), len(example.masked_positions)
        batch["input_ids"][row, :length] = example.input_ids
        batch["token_type_ids"][row, :length] = example.token_type_ids
        batch["attention_mask"][row, :length] = 1
        batch["masked_positions"][row, :targets] = example.masked_positions
        batch["masked_labels"][row, :targets] = example.masked_labels
    return batch


@pytest.fixture
def store(corpus_folder: Path, tokenizer_folder: Path, tmp_path: Path, config: ExamplesConfig) -> ExampleStore:
    build_examples(config, tokenizer_folder, corpus_folder, tmp_path / "examples", num_workers=1)
    return ExampleStore.open(tmp_path / "examples", "train", 32)


def test_a_masked_batch_is_the_collated_masked_examples(store: ExampleStore) -> None:
    policy = masking_policy(store.manifest)
    indices = np.random.default_rng(0).permutation(len(store))[:50]
    fast = masked_batch(store, indices, epoch=3, seed=5, policy=policy)
    slow = collate(
        [mask_example(store[int(i)], seed=5, epoch=3, example_id=int(i), policy=policy) for i in indices],
        max_length=32,
        max_targets=max_targets(32, policy.mask_prob),
        pad_id=policy.pad_id,
    )
    assert fast.keys() == slow.keys()
    for name, values in slow.items():
        assert fast[name].dtype == values.dtype == np.int64, name
        assert (fast[name] == values).all(), name
