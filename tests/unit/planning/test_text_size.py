"""How much text there is: what was counted goes before what is estimated, and neither is believed of another text."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from bertline.corpus.readers.table import HubCorpusConfig
from bertline.corpus.readers.text import TextCorpusConfig
from bertline.demo.reader import PythonDocsCorpusConfig
from bertline.foundation.files import write_json
from bertline.foundation.manifests import write_manifest
from bertline.foundation.validation import validate
from bertline.planning.text_size import TextSize, made_as_configured, sections_made_with, text_size, vocab_size
from bertline.tokenization.config import ExistingTokenizerConfig, ExtendedTokenizerConfig, TrainedTokenizerConfig
from planning_inputs import CONF


def corpus(cls: Any, kind: str, /, **changes: Any) -> Any:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        content: Any = OmegaConf.to_container(compose(f"corpus/{kind}"))["corpus"]
    return validate(cls, {**content, **changes})


def tokenizer(**changes: Any) -> TrainedTokenizerConfig:
    content: Any = OmegaConf.to_container(OmegaConf.load(CONF / "tokenizer/wordpiece.yaml"))
    return validate(TrainedTokenizerConfig, {**content, **changes})


def write_examples(artifacts: Path, *, copies: int = 1) -> None:
    lengths = {"64": {"examples": 600 * copies, "tokens": 36_000 * copies}}
    content = {
        "dupe_factor": copies,
        "corpus": {"train": {"tokens": 34_000}},
        "lengths": {length: {"train": facts, "validation": facts} for length, facts in lengths.items()},
    }
    write_manifest(artifacts / "examples", kind="examples", format_version=1, content=content)


def size_of(tmp_path: Path, config: Any, **changes: Any) -> TextSize:
    made_so = {"corpus": True, "examples": True}
    arguments = {"artifacts": tmp_path, "metrics": tmp_path / "metrics", "made_so": made_so, "num_tokens": None}
    return text_size(config, **{**arguments, **changes})


@pytest.mark.parametrize("copies", [1, 10])
def test_examples_that_are_made_are_counted_one_pass_over_the_text(tmp_path: Path, copies: int) -> None:
    write_examples(tmp_path, copies=copies)
    found = size_of(tmp_path, corpus(PythonDocsCorpusConfig, "python_docs"))
    assert (found.basis.startswith("counted"), found.tokens) == (True, 34_000)
    examples = found.examples(64)
    assert examples is not None
    assert (examples.sequences, examples.tokens) == (600, 36_000)
    assert (found.tokens_per_sequence(64), found.tokens_per_sequence(128)) == (60, 128)


def test_of_another_length_there_are_as_many_examples_as_the_text_fills(tmp_path: Path) -> None:
    write_examples(tmp_path)
    found = size_of(tmp_path, corpus(PythonDocsCorpusConfig, "python_docs")).examples(128)
    assert found is not None
    assert (found.sequences, found.tokens) == (34_000 / 125, 34_000 / 125 * 128)


def test_artifacts_of_another_text_are_not_believed(tmp_path: Path) -> None:
    write_examples(tmp_path)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_text("x" * 4000)
    config = corpus(TextCorpusConfig, "text", path=str(tmp_path / "texts"))
    found = size_of(tmp_path, config, made_so={"corpus": False, "examples": False})
    assert (found.basis.startswith("counted"), found.tokens) == (False, 1000)
    assert "an estimate" in found.basis


def test_a_corpus_without_examples_is_estimated_from_its_characters(tmp_path: Path) -> None:
    counts = {"train": {"characters": 8000}, "validation": {"characters": 80}}
    write_manifest(tmp_path / "corpus", kind="corpus", format_version=1, content={"counts": counts})
    found = size_of(tmp_path, corpus(PythonDocsCorpusConfig, "python_docs"))
    assert (found.basis.startswith("counted"), found.tokens) == (False, 2000)


def test_compressed_files_count_for_what_they_hold(tmp_path: Path) -> None:
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    for folder in (plain, packed):
        folder.mkdir()
    (plain / "a.txt").write_text("x" * 900)
    (packed / "a.txt.gz").write_bytes(gzip.compress(b"x" * 900))
    size = (packed / "a.txt.gz").stat().st_size
    tokens = {name: size_of(tmp_path, corpus(TextCorpusConfig, "text", path=str(tmp_path / name))).tokens
              for name in ("plain", "packed")}  # fmt: skip
    assert tokens == {"plain": 225, "packed": 3 * size / 4}


def test_the_default_text_is_known_from_an_earlier_run(tmp_path: Path) -> None:
    write_json(tmp_path / "metrics/corpus.json", {"train/characters": 4000})
    assert size_of(tmp_path, corpus(PythonDocsCorpusConfig, "python_docs")).tokens == 1000


@pytest.mark.parametrize(
    "config",
    [
        corpus(PythonDocsCorpusConfig, "python_docs"),
        corpus(HubCorpusConfig, "hub", name="some/set", revision="0"),
        corpus(TextCorpusConfig, "text", path="nowhere/at/all"),
    ],
    ids=["docs", "hub", "nothing"],
)
def test_where_nothing_is_known_that_is_said_with_what_to_do(tmp_path: Path, config: Any) -> None:
    found = size_of(tmp_path, config)
    assert found.tokens is None
    assert found.examples(64) is None
    assert "plan.corpus_tokens=" in found.basis


def test_what_the_user_says_goes_before_all_else(tmp_path: Path) -> None:
    write_examples(tmp_path)
    assert size_of(tmp_path, corpus(PythonDocsCorpusConfig, "python_docs"), num_tokens=3.3e9).tokens == 3.3e9


def test_the_lock_says_what_artifacts_were_made_with() -> None:
    made = {
        "corpus": {"kind": "python_docs"},
        "python_docs": {"held_out_fraction": 0.1},
        "tokenizer": {"vocab_size": 9},
    }
    lock = {"stages": {"corpus": {"params": {"params.yaml": {key: made[key] for key in ("corpus", "python_docs")}}},
                       "tokenizer": {"params": {"params.yaml": {"tokenizer": made["tokenizer"]}}},
                       "configure": {"cmd": "python pipelines/configure.py"}}}  # fmt: skip
    assert sections_made_with(lock) == made
    assert sections_made_with({}) == {}
    assert made_as_configured(made, made) == {"corpus": True, "examples": True}
    other_tokens = {**made, "tokenizer": {"vocab_size": 10}}
    assert made_as_configured(made, other_tokens) == {"corpus": True, "examples": False}
    other_packages = {**made, "python_docs": {"held_out_fraction": 0.2}}
    assert made_as_configured(made, other_packages) == {"corpus": False, "examples": False}
    own_text = {**other_packages, "corpus": {"kind": "text"}}
    assert made_as_configured({**made, "corpus": {"kind": "text"}}, own_text) == {"corpus": True, "examples": True}


def test_the_vocabulary_that_was_made_goes_before_the_configured_one(tmp_path: Path) -> None:
    write_json(tmp_path / "tokenizer/manifest.json", {"vocab_size": 7000})
    assert vocab_size(tokenizer(), artifacts=tmp_path, made_so={"examples": True}) == 7000
    assert vocab_size(tokenizer(), artifacts=tmp_path, made_so={"examples": False}) == 8192


def test_a_given_vocabulary_is_counted_and_one_of_the_hub_is_not_fetched(tmp_path: Path) -> None:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b"]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens))
    for path, expected in ((str(tmp_path), 7), ("google-bert/bert-base-uncased", 30_522)):
        config = ExistingTokenizerConfig(
            kind="existing", path=path, revision=None, lowercase=True, user_words=(), compare=()
        )
        assert vocab_size(config, artifacts=tmp_path / "none", made_so={}) == expected
        more = {"num_new": 50, "min_frequency": 9, "sample_characters": 9, "user_words": (), "compare": ()}
        extended = ExtendedTokenizerConfig(kind="extended", path=path, revision=None, lowercase=True, **more)
        assert vocab_size(extended, artifacts=tmp_path / "none", made_so={}) == expected + 50
