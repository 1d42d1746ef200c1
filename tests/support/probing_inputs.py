"""A made-up language with an order to learn: words of three kinds take turns in each sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bertline.examples.store import split_folder
from bertline.foundation.manifests import write_manifest
from bertline.tokenization.storage import save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from example_shards import write_shards
from pretraining_inputs import examples_manifest

LENGTH = 32
NUM_WORDS = 30
TOKENS = (*SPECIAL_TOKENS, ".", ",", "##s", *(f"word{number}" for number in range(NUM_WORDS)))
TOKENIZER = Tokenizer(Vocabulary(tokens=TOKENS, lowercase=True))
FIRST_WORD = TOKENS.index("word0")


def sentence(rng: np.random.Generator, words: range = range(NUM_WORDS)) -> list[int]:
    """Five to eight words, and a full stop. Words are of three kinds, by their number, that take turns."""
    first, size = int(rng.integers(3)), int(rng.integers(5, 9))
    kinds = [[word for word in words if word % 3 == kind] for kind in range(3)]
    chosen = [rng.choice(kinds[(first + place) % 3]) for place in range(size)]
    return [*(FIRST_WORD + int(word) for word in chosen), TOKENS.index(".")]


def pair(rng: np.random.Generator, words: range = range(NUM_WORDS)) -> tuple[list[int], list[int]]:
    """The segments of an example: two sentences, then one more."""
    return [*sentence(rng, words), *sentence(rng, words)], sentence(rng, words)


def write_language(folder: Path, *, num_train: int = 600, num_validation: int = 400) -> None:
    """Write `tokenizer/` and `examples/`."""
    rng = np.random.default_rng(3)
    save_tokenizer(TOKENIZER, folder / "tokenizer")
    splits = {"train": [pair(rng) for _ in range(num_train)], "validation": [pair(rng) for _ in range(num_validation)]}
    write_examples(folder / "examples", splits)


def write_examples(folder: Path, splits: dict[str, list[tuple[list[int], list[int]]]]) -> None:
    """An examples artifact of pairs of segments, each a list of token ids."""
    manifest = examples_manifest(len(TOKENS), shard_sequences=64)
    manifest["lengths"][str(LENGTH)] = {"unigram_entropy": 3.0}
    for split, pairs in splits.items():
        rows = [[2, *a, 3, *b, 3] for a, b in pairs]
        firsts, labels = [len(a) + 2 for a, _ in pairs], np.arange(len(rows)) % 2
        tokens = write_shards(split_folder(folder, split, LENGTH), rows, firsts, labels, 64)
        manifest["lengths"][str(LENGTH)][split] = {"examples": len(rows), "tokens": tokens}
    write_manifest(folder, kind="examples", format_version=1, content=manifest)
