"""Examples for people."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bertline.examples.build import describe_example
from bertline.examples.masking import MaskingPolicy
from bertline.examples.store import ExampleBlock, ExampleStore, ExampleWriter, split_folder
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary


def describe(tmp_path: Path, mask: float, random: float, label: int) -> str:
    tokenizer = Tokenizer(Vocabulary(tokens=(*SPECIAL_TOKENS, "cat", "##s"), lowercase=True))
    writer = ExampleWriter(split_folder(tmp_path, "train", 8), 10)
    writer.write(ExampleBlock(np.array([2, 5, 3, 6, 3]), np.array([5]), np.array([3]), np.array([label])))
    writer.close()
    manifest = {
        "lengths": {"8": {"train": {"examples": 1, "tokens": 5}}},
        "shard_sequences": 10,
        "special_ids": {"[PAD]": 0, "[CLS]": 2, "[SEP]": 3},
        "random_next_prob": 0.5,
    }
    policy = MaskingPolicy(
        mask_prob=0.99,
        replace_with_mask_prob=mask,
        replace_with_random_prob=random,
        static=False,
        vocab_size=7,
        pad_id=0,
        mask_id=4,
        special_ids=(0, 1, 2, 3, 4),
    )
    return describe_example(ExampleStore(tmp_path, "train", 8, manifest), 0, tokenizer, seed=0, policy=policy)


def test_masked_targets_show_the_true_token_and_the_mask(tmp_path: Path) -> None:
    assert describe(tmp_path, mask=1.0, random=0.0, label=0) == (
        "example 0: B is what follows A (label 0); 5 tokens, 2 targets\n"
        "  A: [CLS] <cat=[MASK]> [SEP]\n"
        "  B: <##s=[MASK]> [SEP]\n"
    )
