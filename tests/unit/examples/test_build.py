"""The examples stage."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from bertline.examples.build import build_examples
from bertline.examples.config import ExamplesConfig, StaticMaskingConfig
from bertline.examples.store import ExampleStore
from bertline.foundation.errors import DataError
from bertline.foundation.files import sha256_of_path
from engines import local

STATIC = StaticMaskingConfig(
    kind="static", mask_prob=0.15, replace_with_mask_prob=0.8, replace_with_random_prob=0.1, dupe_factor=3
)
LONG = ["bal bar bas bat bel ber bes bet bil bir"] * 3


def test_both_splits_are_made_for_every_length(
    corpus_folder: Path, tokenizer_folder: Path, tmp_path: Path, config: ExamplesConfig
) -> None:
    headline = build_examples(config, tokenizer_folder, corpus_folder, tmp_path / "out", **local(tmp_path / "out"))
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    for length in (16, 32):
        for split in ("train", "validation"):
            store = ExampleStore.open(tmp_path / "out", split, length)
            examples = [store[index] for index in range(len(store))]
            assert len(examples) == headline[f"length_{length}/{split}_examples"] > 10
            assert sum(len(example.input_ids) for example in examples) == store.num_tokens
            assert max(len(example.input_ids) for example in examples) == length
            labels = sum(example.next_sentence_label for example in examples)
            assert labels == manifest["lengths"][str(length)][split]["random_next"]
        assert 3 < manifest["lengths"][str(length)]["unigram_entropy"] < np.log(200)
    assert not (tmp_path / "out/encoded").exists()


def test_the_bytes_are_the_same_with_one_worker_and_with_two(
    corpus_folder: Path, tokenizer_folder: Path, tmp_path: Path, config: ExamplesConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertline.examples.encoding._BATCH_CHARACTERS", 3000)
    for workers in (1, 2):
        build_examples(
            config, tokenizer_folder, corpus_folder, tmp_path / str(workers), **local(tmp_path / str(workers), workers)
        )
    assert sha256_of_path(tmp_path / "1") == sha256_of_path(tmp_path / "2")


def test_static_masking_makes_train_pairs_dupe_factor_times_and_validation_once(
    corpus_folder: Path, tokenizer_folder: Path, tmp_path: Path, config: ExamplesConfig
) -> None:
    once = build_examples(config, tokenizer_folder, corpus_folder, tmp_path / "once", **local(tmp_path / "once"))
    static = dataclasses.replace(config, masking=STATIC)
    thrice = build_examples(static, tokenizer_folder, corpus_folder, tmp_path / "thrice", **local(tmp_path / "thrice"))
    assert 2.6 < thrice["length_16/train_examples"] / once["length_16/train_examples"] < 3.4
    assert thrice["length_16/validation_examples"] == once["length_16/validation_examples"]


@pytest.mark.parametrize(
    ("train", "validation", "split"), [([LONG], [LONG, LONG], "train"), ([LONG] * 3, [], "validation")]
)
def test_too_few_documents_are_an_error_that_says_what_to_do(
    corpus_of,
    tokenizer_folder: Path,
    tmp_path: Path,
    config: ExamplesConfig,
    monkeypatch,
    train,
    validation,
    split: str,
) -> None:
    def encode(*arguments: object, **keywords: object) -> None:
        raise AssertionError("nothing is encoded before the number of documents is looked at")

    monkeypatch.setattr("bertline.examples.build.encode_file", encode)
    with pytest.raises(DataError, match=rf"documents with text in its {split} split .* need at least 2"):
        build_examples(
            config, tokenizer_folder, corpus_of(train, validation), tmp_path / "out", **local(tmp_path / "out")
        )
    assert not (tmp_path / "out").exists()
