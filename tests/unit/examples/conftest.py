"""A corpus and a tokenizer from made-up words, small enough to read."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bertline.corpus.document import Document
from bertline.corpus.storage import FORMAT_VERSION, KIND
from bertline.examples.config import DynamicMaskingConfig, ExamplesConfig
from bertline.examples.masking import MaskingPolicy
from bertline.foundation.manifests import write_manifest
from bertline.tokenization.storage import save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from corpora import ShardWriter

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


@pytest.fixture
def tokenizer_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "tokenizer"
    save_tokenizer(Tokenizer(Vocabulary(tokens=TOKENS, lowercase=True)), folder)
    return folder


@pytest.fixture
def corpus_folder(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus", documents_of("train", 60), documents_of("validation", 12))


def write_corpus(folder: Path, train: list[Document], validation: list[Document]) -> Path:
    """A corpus artifact of these documents."""
    folder.mkdir()
    shards, counts = {}, {}
    for split, documents in (("train", train), ("validation", validation)):
        writer = ShardWriter(folder, split, shard_documents=25)
        for document in documents:
            writer.write(document)
        shards[split] = writer.close()
        characters = sum(len(sentence) for document in documents for sentence in document.sentences)
        counts[split] = {"documents": len(documents), "characters": characters}
    write_manifest(folder, kind=KIND, format_version=FORMAT_VERSION, content={"shards": shards, "counts": counts})
    return folder


@pytest.fixture
def corpus_of(tmp_path: Path):
    """`corpus_of(train, validation)`, each a list of documents, each a list of sentences."""

    def write(train: list[list[str]], validation: list[list[str]]) -> Path:
        made = [
            [Document(f"{name}-{index}", name, tuple(sentences)) for index, sentences in enumerate(documents)]
            for name, documents in (("train", train), ("validation", validation))
        ]
        return write_corpus(tmp_path / "made-up-corpus", *made)

    return write


@pytest.fixture
def config() -> ExamplesConfig:
    return ExamplesConfig(
        seed=5,
        lengths=(16, 32),
        random_next_prob=0.5,
        short_sequence_prob=0.1,
        shard_sequences=40,
        masking=DynamicMaskingConfig(
            kind="dynamic", mask_prob=0.15, replace_with_mask_prob=0.8, replace_with_random_prob=0.1
        ),
    )


@pytest.fixture
def policy() -> MaskingPolicy:
    return MaskingPolicy(
        mask_prob=0.15,
        replace_with_mask_prob=0.8,
        replace_with_random_prob=0.1,
        static=False,
        vocab_size=1000,
        pad_id=0,
        mask_id=4,
        special_ids=(0, 1, 2, 3, 4),
    )
