"""Synthetic examples artifact with its tokenizer: sequences of random tokens, for measuring speed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import repository_source  # noqa: F401

from bertline.corpus.document import Split
from bertline.examples.store import ExampleBlock, ExampleStore, split_folder, token_id_dtype, write_shard
from bertline.foundation.manifests import write_manifest
from bertline.tokenization.storage import save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import CLS, SEP, SPECIAL_TOKENS, Vocabulary

MASK_PROB, SEED = 0.15, 0
FEWEST_TOKENS = 8
"""Minimum number of tokens of a sequence, the same as for `examples.lengths`."""
_NUM_TRAIN, _NUM_VALIDATION = 4096, 8
_SHORT_PROB = 0.1


def write_made_up_examples(folder: Path, *, vocab_size: int, seq_len: int, lengths: str = "full") -> np.ndarray:
    """Write `tokenizer/` and `examples/`: `[CLS] A [SEP] B [SEP]`, split at random; return the lengths for training.

    Args:
        folder: Folder to write to.
        vocab_size: Number of tokens of the vocabulary.
        seq_len: Length of the longest sequences.
        lengths: See `sequence_lengths`.
    """
    ordinary = tuple(f"word{number}" for number in range(vocab_size - len(SPECIAL_TOKENS)))
    tokens = (*SPECIAL_TOKENS, *ordinary)
    save_tokenizer(Tokenizer(Vocabulary(tokens=tokens, lowercase=True)), folder / "tokenizer")
    counts: dict[Split, int] = {"train": _NUM_TRAIN, "validation": _NUM_VALIDATION}
    of_splits = {split: sequence_lengths(lengths, count, seq_len) for split, count in counts.items()}
    for split in counts:
        shards = split_folder(folder / "examples", split, seq_len)
        shards.mkdir(parents=True)
        write_shard(shards, 0, _block(of_splits[split], vocab_size=vocab_size))
    of_split: dict[str, Any] = {
        split: {"examples": len(each), "tokens": int(each.sum())} for split, each in of_splits.items()
    }
    content = {
        "seed": SEED,
        "random_next_prob": 0.5,
        "vocab_size": vocab_size,
        "special_ids": {token: index for index, token in enumerate(SPECIAL_TOKENS)},
        "masking": {
            "kind": "dynamic",
            "mask_prob": MASK_PROB,
            "replace_with_mask_prob": 0.8,
            "replace_with_random_prob": 0.1,
        },
        "shard_sequences": max(counts.values()),
        "lengths": {str(seq_len): {"unigram_entropy": math.log(len(ordinary)), **of_split}},
    }
    write_manifest(folder / "examples", kind="examples", format_version=1, content=content)
    return of_splits["train"]


def sequence_lengths(choice: str, count: int, seq_len: int) -> np.ndarray:
    """Return the numbers of tokens of sequences, at most `seq_len`.

    Args:
        choice: `full`: all have `seq_len` tokens. `mixed`: nine of ten do, the others have any number, equally likely,
            as the reference code makes them (google-research/bert, create_pretraining_data.py, short_seq_prob 0.1).
            Else the folder of an examples artifact with this length, whose lengths are drawn from.
        count: Number of sequences.
        seq_len: Length of the longest sequences.
    """
    random = np.random.default_rng(SEED + 1)
    if choice == "full":
        return np.full(count, seq_len)
    if choice == "mixed":
        return np.where(random.random(count) < _SHORT_PROB, random.integers(FEWEST_TOKENS, seq_len + 1, count), seq_len)
    store = ExampleStore.open(Path(choice), "train", seq_len)
    return store.padded(random.integers(0, len(store), count)).lengths.astype(np.int64)


def _block(lengths: np.ndarray, *, vocab_size: int) -> ExampleBlock:
    random = np.random.default_rng(SEED)
    ends = lengths.cumsum()
    tokens = random.integers(len(SPECIAL_TOKENS), vocab_size, int(ends[-1])).astype(token_id_dtype(vocab_size))
    firsts = random.integers(3, lengths - 1)  # [CLS] A [SEP], with at least one token in A and in B
    starts = ends - lengths
    tokens[starts] = SPECIAL_TOKENS.index(CLS)
    tokens[starts + firsts - 1] = tokens[ends - 1] = SPECIAL_TOKENS.index(SEP)
    return ExampleBlock(
        input_ids=tokens,
        lengths=lengths,
        first_segment_lengths=firsts,
        next_sentence_labels=random.integers(0, 2, len(lengths)),
    )
