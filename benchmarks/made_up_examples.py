"""Synthetic examples artifact with its tokenizer: full-length sequences of random tokens, for measuring speed."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import repository_source  # noqa: F401

from bertline.examples.store import ExampleBlock, ExampleWriter, split_folder, token_id_dtype
from bertline.foundation.manifests import write_manifest
from bertline.tokenization.storage import save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import CLS, SEP, SPECIAL_TOKENS, Vocabulary

MASK_PROB, SEED = 0.15, 0
FEWEST_TOKENS = 8
"""Minimum number of tokens of a sequence, the same as for `examples.lengths`."""
_NUM_TRAIN, _NUM_VALIDATION = 4096, 8


def write_made_up_examples(folder: Path, *, vocab_size: int, seq_len: int) -> None:
    """Write `tokenizer/` and `examples/`: `[CLS] A [SEP] B [SEP]` of exactly `seq_len` tokens, split at random."""
    ordinary = tuple(f"word{number}" for number in range(vocab_size - len(SPECIAL_TOKENS)))
    tokens = (*SPECIAL_TOKENS, *ordinary)
    save_tokenizer(Tokenizer(Vocabulary(tokens=tokens, lowercase=True)), folder / "tokenizer")
    counts = {"train": _NUM_TRAIN, "validation": _NUM_VALIDATION}
    for split, count in counts.items():
        writer = ExampleWriter(split_folder(folder / "examples", split, seq_len), count)
        writer.write(_block(count, vocab_size=vocab_size, seq_len=seq_len))
        writer.close()
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
        "lengths": {
            str(seq_len): {
                "unigram_entropy": math.log(len(ordinary)),
                **{split: {"examples": count, "tokens": count * seq_len} for split, count in counts.items()},
            }
        },
    }
    write_manifest(folder / "examples", kind="examples", format_version=1, content=content)


def _block(count: int, *, vocab_size: int, seq_len: int) -> ExampleBlock:
    random = np.random.default_rng(SEED)
    rows = random.integers(len(SPECIAL_TOKENS), vocab_size, (count, seq_len)).astype(token_id_dtype(vocab_size))
    firsts = random.integers(3, seq_len - 1, count)  # [CLS] A [SEP], with at least one token in A and in B
    separator = SPECIAL_TOKENS.index(SEP)
    rows[:, 0], rows[:, -1] = SPECIAL_TOKENS.index(CLS), separator
    rows[np.arange(count), firsts - 1] = separator
    return ExampleBlock(
        input_ids=rows.ravel(),
        lengths=np.full(count, seq_len),
        first_segment_lengths=firsts,
        next_sentence_labels=random.integers(0, 2, count),
    )
