"""The tokenizer stage: a vocabulary trained on the corpus, or an existing one, with a report on its quality."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, assert_never

from bertline.corpus.document import Split
from bertline.corpus.storage import FORMAT_VERSION as CORPUS_FORMAT_VERSION
from bertline.corpus.storage import KIND as CORPUS_KIND
from bertline.corpus.storage import read_documents
from bertline.foundation.errors import DataError
from bertline.foundation.files import folder_written_atomically
from bertline.foundation.manifests import read_manifest, versions_of, write_manifest
from bertline.foundation.progress import progress, say
from bertline.foundation.seeds import unit_interval
from bertline.tokenization.config import ExistingTokenizerConfig, TokenizerConfig, TrainedTokenizerConfig
from bertline.tokenization.quality import count_words, quality_report
from bertline.tokenization.resolve import resolve_folder
from bertline.tokenization.storage import save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary, read_vocabulary
from bertline.tokenization.wordpiece import train_wordpiece

FORMAT_VERSION = 1

_REPORT_CHARACTERS = 20_000_000
"""Approximate amount of text for the quality report: enough for rates to four decimal places."""


def build_tokenizer(
    config: TokenizerConfig, corpus_folder: Path, out: Path, *, num_workers: int
) -> dict[str, float | int]:
    """Build the tokenizer artifact: `tokenizer.json`, `vocab.txt`, `tokenizer_config.json`, `manifest.json`.

    The output bytes depend only on the corpus and the configuration, not on `num_workers`.

    Returns:
        Vocabulary size and the main figures of the quality report.

    Raises:
        DataError: The corpus does not support the vocabulary size, or the existing vocabulary cannot be used.
    """
    match config:
        case TrainedTokenizerConfig():
            vocabulary, facts = _train(config, corpus_folder, num_workers)
        case ExistingTokenizerConfig():
            vocabulary, facts = _existing(config), {"path": config.path, "revision": config.revision}
        case _:
            assert_never(config)
    tokenizer = Tokenizer(vocabulary)
    quality = _quality(tokenizer, corpus_folder, num_workers)
    with folder_written_atomically(out) as folder:
        save_tokenizer(tokenizer, folder)
        content: dict[str, Any] = {
            "source": config.kind,
            "vocab_size": tokenizer.vocab_size,
            "lowercase": tokenizer.lowercase,
            "special_ids": {token: tokenizer.vocab.index(token) for token in SPECIAL_TOKENS},
            "quality": quality,
            "versions": versions_of("tokenizers"),
            **facts,
        }
        write_manifest(folder, kind="tokenizer", format_version=FORMAT_VERSION, content=content)
    headline = ("tokens_per_word", "unknown_rate", "whole_word_rate")
    return {"vocab_size": tokenizer.vocab_size, **{name: quality[name] for name in headline}}


def _train(config: TrainedTokenizerConfig, corpus_folder: Path, num_workers: int) -> tuple[Vocabulary, dict[str, Any]]:
    fraction = min(1.0, config.sample_characters / max(1, _counts(corpus_folder, "train")["characters"]))
    plain = Vocabulary(tokens=(), lowercase=config.lowercase)
    word_counts = count_words(_sentences(corpus_folder, "train", fraction), plain, num_workers=num_workers)
    if not word_counts:
        raise DataError(f"{corpus_folder} has no words in its train split, so no vocabulary can be trained on it.")
    say(f"training {config.vocab_size:,} tokens on {len(word_counts):,} distinct words")
    tokens = train_wordpiece(
        word_counts,
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        max_alphabet=config.max_alphabet,
    )
    facts = {
        "trained_on": {
            "fraction": fraction,
            "words": sum(word_counts.values()),
            "distinct_words": len(word_counts),
            "characters_known": sum(len(token) == 1 for token in tokens),
        }
    }
    return Vocabulary(tokens=tokens, lowercase=config.lowercase), facts


def _existing(config: ExistingTokenizerConfig) -> Vocabulary:
    path = Path(config.path).expanduser()
    if not path.is_file():
        path = resolve_folder(config.path, config.revision)
    return read_vocabulary(path, lowercase=config.lowercase)


def _quality(tokenizer: Tokenizer, corpus_folder: Path, num_workers: int) -> dict[str, Any]:
    """Return the quality report for the validation split, or for the train split if nothing is held out."""
    split: Split = "validation" if _counts(corpus_folder, "validation")["characters"] else "train"
    fraction = min(1.0, _REPORT_CHARACTERS / max(1, _counts(corpus_folder, split)["characters"]))
    sentences = _sentences(corpus_folder, split, fraction)
    word_counts = count_words(sentences, tokenizer.vocabulary, num_workers=num_workers)
    return {"split": split, **quality_report(tokenizer, word_counts)}


def _sentences(corpus_folder: Path, split: Split, fraction: float) -> Iterator[str]:
    """Yield the sentences of a fraction of the documents, sampled by a hash of each document's id."""
    documents = progress(
        read_documents(corpus_folder, split),
        description=f"counting words, {split} documents",
        total=_counts(corpus_folder, split)["documents"],
    )
    for document in documents:
        if fraction >= 1 or unit_interval("tokenizer sample", document.id) < fraction:
            yield from document.sentences


def _counts(corpus_folder: Path, split: Split) -> dict[str, int]:
    """Return the counts of documents, sentences, characters and words of a split from the corpus manifest."""
    manifest = read_manifest(corpus_folder, kind=CORPUS_KIND, format_version=CORPUS_FORMAT_VERSION)
    return {"documents": 0, "characters": 0, **manifest["counts"][split]}
