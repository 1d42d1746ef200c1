"""Tokenizers built of a few lines of text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import staged_runs
from bertline.tokenization.build import build_tokenizer
from bertline.tokenization.config import TokenizerConfig, TrainedTokenizerConfig
from bertline.tokenization.tokenizer import Tokenizer
from corpora import local, write_corpus

TEXTS = [
    [f"The {noun}s {verb} the array of the {noun}.", f"{verb.title()}ing a {noun} doesn't return another {noun}."]
    for noun in ("matrix", "vector", "kernel", "frame", "series", "tensor", "index", "café")
    for verb in ("sort", "filter", "reshape", "compute", "transform")
]
VALIDATION = [["A sorted tensor returns ☃ the Café."], ["Nothing else."]]


class Built(staged_runs.Built):
    """A tokenizer artifact and the figures of its stage."""

    @property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer.load(self.folder)


@pytest.fixture
def texts() -> list[list[str]]:
    return TEXTS


@pytest.fixture
def config() -> TrainedTokenizerConfig:
    return replace(staged_runs.TOKENIZER, vocab_size=110, min_frequency=1, max_alphabet=60)


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Built]:
    """`build(config, "name", train=..., validation=..., workers=...)`; the first call makes the corpus for all."""

    def build(
        config: TokenizerConfig,
        name: str = "out",
        train: Sequence[Sequence[str]] = TEXTS,
        validation: Sequence[Sequence[str]] = VALIDATION,
        workers: int = 0,
    ) -> Built:
        corpus, out = tmp_path / "corpus", tmp_path / name
        if not corpus.exists():
            write_corpus(corpus, train, validation, shard_documents=50)
        return Built(out, build_tokenizer(config, corpus, out, **local(out, workers)))

    return build
