"""What is masked at once: words as tokenizers mark them, spans, and how many patterns static and dynamic masks show."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from bertline.examples.build import build_examples
from bertline.examples.config import ExamplesConfig, StaticMaskingConfig
from bertline.examples.masking import MaskingPolicy, mask_rows, masked_batch, masking_policy
from bertline.examples.store import ExampleStore
from bertline.foundation.files import sha256_of_path
from bertline.foundation.labels import IGNORED_LABEL
from bertline.foundation.manifests import read_manifest
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from bertline.tokenization.words import word_starts
from engines import local


def test_word_pieces_that_continue_a_word_begin_none() -> None:
    tokenizer = Tokenizer(Vocabulary(tokens=(*SPECIAL_TOKENS, "token", "##s", "##!", ",", "##"), lowercase=True))
    assert word_starts(tokenizer)[len(SPECIAL_TOKENS) :] == [True, False, False, True, False]


def test_a_word_is_masked_whole_and_shown_token_by_token_a_span_alike(policy: MaskingPolicy) -> None:
    # Words of one, two and three tokens in turns: 10 | 11 21 | 12 22 22 | 10 | ...
    row = np.array([2, *[10, 11, 21, 12, 22, 22] * 20, 3])
    bits = np.packbits([not 20 <= token < 30 for token in range(1000)]).tobytes()
    rows = row[None].repeat(3000, axis=0)
    words = (np.isin(row, (10, 11, 12)).cumsum() * ~np.isin(row, (2, 3))).astype(int)
    for unit in ("word", "span"):
        of_unit = dataclasses.replace(policy, unit=unit, word_starts=bits)
        result = mask_rows(rows, np.arange(3000), seed=1, epoch=0, policy=of_unit, num_columns=18)
        is_target = np.zeros(rows.shape, dtype=bool)
        used = result.masked_labels != IGNORED_LABEL
        is_target[np.nonzero(used)[0], result.masked_positions[used]] = True
        assert (used.sum(1) >= 17).all() and used.sum() / rows[:, 1:-1].size == pytest.approx(0.15, abs=0.001)
        for word in range(1, 61):
            assert (is_target[:, words == word].all(1) | ~is_target[:, words == word].any(1)).all()
        shown, targets = np.where(is_target, result.input_ids, -1), is_target.sum()
        assert (shown == policy.mask_id).sum() / targets == pytest.approx(0.8, abs=0.01)
        runs = [row[mask] for row, mask in zip(shown == policy.mask_id, is_target, strict=True)]
        neighbours = [left == right for run in runs for left, right in pairwise(run.tolist())]
        # Within a span all are alike; two neighbours that are replaced each on its own are in 0.8² + 0.2² of cases.
        same = np.mean(neighbours)
        assert same == pytest.approx(0.68, abs=0.01) if unit == "word" else same > 0.85


@pytest.mark.parametrize("unit", ["word", "span"])
def test_the_artifact_has_the_beginnings_of_words_and_masks_by_them(
    corpus_folder: Path, tokenizer_folder: Path, tmp_path: Path, config: ExamplesConfig, unit: str
) -> None:
    config = dataclasses.replace(config, masking=dataclasses.replace(config.masking, unit=unit))
    for workers in (1, 2):
        build_examples(
            config, tokenizer_folder, corpus_folder, tmp_path / str(workers), **local(tmp_path / str(workers), workers)
        )
    assert sha256_of_path(tmp_path / "1") == sha256_of_path(tmp_path / "2")
    manifest = read_manifest(tmp_path / "1", kind="examples", format_version=1)
    policy, tokenizer = masking_policy(json.loads(json.dumps(manifest))), Tokenizer.load(tokenizer_folder)
    bits = np.unpackbits(np.frombuffer(policy.word_starts, dtype=np.uint8))[: policy.vocab_size]
    assert policy.unit == unit and bits.astype(bool).tolist() == word_starts(tokenizer)


def test_a_unit_of_tokens_leaves_the_artifact_as_it_was(
    corpus_folder: Path, tokenizer_folder: Path, tmp_path: Path, config: ExamplesConfig
) -> None:
    build_examples(config, tokenizer_folder, corpus_folder, tmp_path / "out", **local(tmp_path / "out"))
    manifest = read_manifest(tmp_path / "out", kind="examples", format_version=1)
    assert "unit" not in manifest["masking"] and "word_starts" not in manifest and "swapped_prob" not in manifest


@pytest.mark.parametrize("static", [True, False])
def test_forty_epochs_show_ten_static_or_forty_dynamic_patterns(
    corpus_folder: Path, tokenizer_folder: Path, tmp_path: Path, config: ExamplesConfig, static: bool
) -> None:
    """RoBERTa (arXiv 1907.11692), section 4.1: with ten copies, each mask is seen four times in forty epochs."""
    probs = {name: getattr(config.masking, name) for name in ("mask_prob", "replace_with_mask_prob")}
    ten = StaticMaskingConfig(kind="static", dupe_factor=10, replace_with_random_prob=0.1, **probs)
    config = dataclasses.replace(
        config, lengths=(64,), random_next_prob=None, short_sequence_prob=0.0, masking=ten if static else config.masking
    )
    build_examples(config, tokenizer_folder, corpus_folder, tmp_path / "out", **local(tmp_path / "out"))
    store = ExampleStore.open(tmp_path / "out", "train", 64)
    policy, everything = masking_policy(store.manifest), np.arange(len(store))
    long = np.flatnonzero(store.padded(everything).lengths > 50)
    patterns: dict[bytes, set[bytes]] = defaultdict(set)
    for epoch in range(40):
        batch = masked_batch(store, long, epoch=epoch, seed=config.seed, policy=policy)
        for index, positions in zip(long, batch["masked_positions"], strict=True):
            patterns[store[int(index)].input_ids.tobytes()].add(positions.tobytes())
    assert len(patterns) > 20
    assert {len(seen) for seen in patterns.values()} == {10 if static else 40}
