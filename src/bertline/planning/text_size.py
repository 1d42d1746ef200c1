"""Size of the text and of the vocabulary: counted if the pipeline has run, otherwise estimated from the files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, assert_never

from bertline.corpus.compression import COMPRESSED_SUFFIXES
from bertline.corpus.input_files import find_files
from bertline.corpus.registry import CorpusConfig, readers_of
from bertline.corpus.storage import FORMAT_VERSION as CORPUS_FORMAT_VERSION
from bertline.corpus.storage import KIND as CORPUS_KIND
from bertline.demo.reader import PythonDocsCorpusConfig
from bertline.examples.store import FORMAT_VERSION, KIND
from bertline.foundation.errors import DataError
from bertline.foundation.files import read_json
from bertline.foundation.manifests import MANIFEST_NAME, read_manifest
from bertline.tokenization.config import (
    ByteBpeTokenizerConfig,
    ExistingTokenizerConfig,
    ExtendedTokenizerConfig,
    TokenizerConfig,
    TrainedTokenizerConfig,
)
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import read_vocabulary

# The default corpus has 3.9 characters per token with a vocabulary of 8,192; English has 4.5 with 30,522, and Chinese
# in UTF-8 has 3 bytes per token.
_BYTES_A_TOKEN = 4.0
# Compressed text and Parquet have about a third of its size.
_COMPRESSED_SUFFIXES = (*COMPRESSED_SUFFIXES, ".parquet")
_COMPRESSION = 3.0
_BERT_VOCAB_SIZE = 30_522
_SPECIAL_TOKENS = 3  # of a pair of BERT; that others have one more or fewer is less than the estimate is off


@dataclass(frozen=True, kw_only=True, slots=True)
class ExamplesOfLength:
    """Train examples of one sequence length, for one epoch."""

    sequences: float
    tokens: float
    """Number of tokens, excluding padding."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TextSize:
    """Size of the train split."""

    tokens: float | None
    """Number of tokens of the text, excluding special tokens; None if unknown."""
    basis: str
    """Source of the figures, as text."""
    lengths: Mapping[int, ExamplesOfLength] = field(default_factory=dict)
    """Counted examples by sequence length, for the lengths that have been built."""

    def examples(self, length: int) -> ExamplesOfLength | None:
        """Return the examples of a length: counted, or as many full sequences as the text gives; None if unknown."""
        if length in self.lengths:
            return self.lengths[length]
        if self.tokens is None:
            return None
        sequences = self.tokens / (length - _SPECIAL_TOKENS)
        return ExamplesOfLength(sequences=sequences, tokens=sequences * length)

    def tokens_per_sequence(self, length: int) -> float:
        """Return the non-padding tokens per sequence: the mean if examples were counted, otherwise the maximum."""
        counted = self.lengths.get(length)
        return counted.tokens / counted.sequences if counted else float(length)


def text_size(
    corpus: CorpusConfig, *, artifacts: Path, metrics: Path, made_so: Mapping[str, bool], num_tokens: float | None
) -> TextSize:
    """Return the size of the text from the best source: examples, corpus, user files, or metrics of an earlier run.

    Args:
        corpus: Configuration of the corpus.
        artifacts: Folder with `examples/` and `corpus/`, if these stages have been run.
        metrics: Folder with the stages' headline metrics, which are in git.
        made_so: For each stage, whether its artifact was made with the present configuration.
        num_tokens: Value of `plan.corpus_tokens`, which overrides all sources.
    """
    if num_tokens is not None:
        return TextSize(tokens=num_tokens, basis="plan.corpus_tokens")
    examples, documents = artifacts / "examples", artifacts / "corpus"
    if made_so.get("examples") and (examples / MANIFEST_NAME).exists():
        return _of_examples(examples)
    if made_so.get("corpus") and (documents / MANIFEST_NAME).exists():
        counts = read_manifest(documents, kind=CORPUS_KIND, format_version=CORPUS_FORMAT_VERSION)["counts"]["train"]
        return _estimated(counts["characters"], f"{documents}: {counts['characters']:,} characters of text")
    paths = {f"{key}.{reader.user_data}": reader.user_path for key, reader in readers_of(corpus)}
    if paths and all(paths.values()):
        return _of_files({key: path for key, path in paths.items() if path is not None})
    path = metrics / "corpus.json"
    if not isinstance(corpus, PythonDocsCorpusConfig) or not path.exists():
        return _unknown(f"the corpus ({corpus.kind}) has not been made yet (dvc repro corpus)")
    characters = read_json(path)["train/characters"]
    return _estimated(characters, f"{path}, of an earlier run: {characters:,} characters")


def _of_examples(folder: Path) -> TextSize:
    manifest = read_manifest(folder, kind=KIND, format_version=FORMAT_VERSION)
    copies = manifest["dupe_factor"]  # of every pair, in one epoch
    return TextSize(
        tokens=manifest["corpus"]["train"]["tokens"],
        basis=f"counted in {folder}",
        lengths={
            int(length): ExamplesOfLength(
                sequences=facts["train"]["examples"] / copies, tokens=facts["train"]["tokens"] / copies
            )
            for length, facts in manifest["lengths"].items()
        },
    )


def _of_files(places: Mapping[str, str]) -> TextSize:
    """Estimate the text of all places, which are given by their keys; weights of sources are not counted."""
    files = []
    for key, place in places.items():
        try:
            files += find_files(str(Path(place).expanduser()), (), Counter())
        except DataError:
            return _unknown(f"nothing is at {place} ({key})")
    size = sum(
        file.path.stat().st_size * (_COMPRESSION if file.path.suffix in _COMPRESSED_SUFFIXES else 1) for file in files
    )
    named = ", ".join(places.values())
    return _estimated(size, f"{named}: {len(files):,} files, about {size / 1e6:,.1f} MB of text")


def _estimated(characters: float, basis: str) -> TextSize:
    return TextSize(tokens=characters / _BYTES_A_TOKEN, basis=f"{basis}, {_BYTES_A_TOKEN:g} a token: an estimate")


def _unknown(reason: str) -> TextSize:
    return TextSize(tokens=None, basis=f"unknown: {reason}; say it with plan.corpus_tokens=")


def vocab_size(tokenizer: TokenizerConfig, *, artifacts: Path, made_so: Mapping[str, bool]) -> int:
    """Return the vocabulary size: that of the artifact, otherwise as configured, otherwise (hub name) that of BERT."""
    if made_so.get("examples") and (artifacts / "tokenizer" / MANIFEST_NAME).exists():
        return read_json(artifacts / "tokenizer" / MANIFEST_NAME)["vocab_size"]
    match tokenizer:
        case TrainedTokenizerConfig() | ByteBpeTokenizerConfig():
            return tokenizer.vocab_size
        case ExistingTokenizerConfig():
            return _size_of_given(tokenizer.path)
        case ExtendedTokenizerConfig():
            return _size_of_given(tokenizer.path) + tokenizer.num_new
        case _:
            assert_never(tokenizer)


def _size_of_given(name: str | None) -> int:
    assert name is not None  # the configuration refuses it
    path = Path(name).expanduser()
    if path.is_dir():
        return Tokenizer.load(path).vocab_size
    return len(read_vocabulary(path, lowercase=True).tokens) if path.exists() else _BERT_VOCAB_SIZE


def sections_made_with(lock: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration sections that artifacts/ was made with, from the content of dvc.lock."""
    stages = (lock.get("stages") or {}).values()
    sections: dict[str, Any] = {}
    for stage in stages:
        sections.update((stage.get("params") or {}).get("params.yaml") or {})
    return sections


def made_as_configured(made_with: Mapping[str, Any], present: Mapping[str, Any]) -> dict[str, bool]:
    """Return whether the artifacts of `corpus` and `examples` match the text and vocabulary of the configuration.

    Args:
        made_with: Result of `sections_made_with`; a missing section is unknown and counts as matching.
        present: Configured sections, as plain data.

    Example:
        >>> made_as_configured({"corpus": {"kind": "text"}}, {"corpus": {"kind": "csv"}, "tokenizer": {}})
        {'corpus': False, 'examples': False}
    """

    def same(section: str) -> bool:
        return section not in made_with or made_with[section] == present.get(section)

    documents = same("python_docs") if (present.get("corpus") or {}).get("kind") == "python_docs" else True
    corpus = same("corpus") and documents
    return {"corpus": corpus, "examples": corpus and same("tokenizer")}
