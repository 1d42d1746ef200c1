"""A corpus and a tokenizer from made-up words, small enough to read, and the examples made of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import staged_runs
from bertline.corpus.document import Document
from bertline.examples.build import build_examples
from bertline.examples.config import ExamplesConfig
from bertline.examples.masking import MaskingPolicy
from bertline.examples.store import Example, ExampleStore
from bertline.tokenization.storage import save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from corpora import local, write_corpus

WORDS = tuple(f"{first}{second}{vowel}" for first in "bdfgklmn" for second in "aeiou" for vowel in "lrst")
TOKENS = (*SPECIAL_TOKENS, *WORDS, ".", "##s")


def documents_of(split: str, count: int) -> list[Document]:
    """Documents of 1 to 12 sentences of 1 to 20 words."""
    rng = random.Random(f"documents {split}")
    return [
        Document(
            f"{split}-{index}",
            f"{split}-{index}",
            tuple(" ".join(rng.choices(WORDS, k=rng.randint(1, 20))) + " ." for _ in range(rng.randint(1, 12))),
        )
        for index in range(count)
    ]


class Built(staged_runs.Built):
    """An examples artifact and the figures of its stage."""

    def store(self, length: int, split: str = "train") -> ExampleStore:
        return ExampleStore.open(self.folder, split, length)

    def examples(self, length: int, split: str = "train") -> list[Example]:
        store = self.store(length, split)
        return [store[index] for index in range(len(store))]


@pytest.fixture
def tokenizer_folder(tmp_path: Path) -> Path:
    save_tokenizer(Tokenizer(Vocabulary(tokens=TOKENS, lowercase=True)), tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


@pytest.fixture
def corpus_folder(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus", documents_of("train", 60), documents_of("validation", 12))


@pytest.fixture
def build(tokenizer_folder: Path, corpus_folder: Path, tmp_path: Path) -> Callable[..., Built]:
    """`build(config, "name", corpus=..., tokenizer=..., workers=...)`: examples in a folder of that name."""

    def build(
        config: ExamplesConfig,
        name: str = "out",
        *,
        corpus: Path = corpus_folder,
        tokenizer: Path = tokenizer_folder,
        workers: int = 0,
    ) -> Built:
        out = tmp_path / name
        return Built(out, build_examples(config, tokenizer, corpus, out, **local(out, workers)))

    return build


@pytest.fixture
def config() -> ExamplesConfig:
    return replace(staged_runs.EXAMPLES, seed=5, lengths=(16, 32), shard_sequences=40)


@pytest.fixture
def policy() -> MaskingPolicy:
    ids = {"pad_id": 0, "mask_id": 4, "special_ids": (0, 1, 2, 3, 4)}
    return MaskingPolicy(static=False, vocab_size=1000, **ids, **staged_runs.MASKING)
