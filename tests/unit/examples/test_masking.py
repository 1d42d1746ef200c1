"""Targets: how many, which, what is masked at once, how they are shown; and that only the arguments decide."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bertline.examples.masking import MaskedRows, MaskingPolicy, mask_example, mask_rows, max_targets
from bertline.examples.store import Array, Example
from bertline.foundation.labels import IGNORED_LABEL
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from bertline.tokenization.words import word_starts

CLS, SEP = 2, 3


def example_of(length: int, seed: int = 0) -> Example:
    rng = np.random.default_rng(seed)
    ids = rng.integers(5, 1000, length)
    ids[0], ids[length // 2], ids[-1] = CLS, SEP, SEP
    return Example(ids, (np.arange(length) > length // 2).astype(np.int64), 0, length // 2 + 1)


def masked(example: Example, policy: MaskingPolicy, example_id: int = 0, epoch: int = 0, seed: int = 0) -> MaskedRows:
    return mask_example(example, seed=seed, epoch=epoch, example_id=example_id, policy=policy)


def targets_of(rows: MaskedRows) -> tuple[Array, Array]:
    """What is shown at all targets, and the true tokens."""
    used = rows.masked_labels != IGNORED_LABEL
    return np.take_along_axis(rows.input_ids, rows.masked_positions, axis=1)[used], rows.masked_labels[used]


def deviations(hits: int, trials: int, probability: float) -> float:
    """How many standard deviations of the binomial the number of hits lies from its mean."""
    return abs(hits - trials * probability) / np.sqrt(trials * probability * (1 - probability))


@pytest.mark.parametrize(("length", "fewest"), [(16, 1), (32, 4), (64, 9), (128, 18), (512, 76)])
def test_fifteen_percent_of_the_maskable_tokens_are_targets_on_average(policy, length, fewest) -> None:
    """15 % of 29 tokens are 4.35: four targets in 65 of 100 examples, five in the others."""
    rows = np.repeat(example_of(length).input_ids[None], 4000, axis=0)
    most = max_targets(length, 0.15)
    result = mask_rows(rows, np.arange(4000), seed=1, epoch=0, policy=policy, num_columns=most)
    num_targets = (result.masked_labels != IGNORED_LABEL).sum(axis=1)
    assert set(num_targets.tolist()) == {fewest, most} == {fewest, fewest + 1}
    share = 0.15 * (length - 3) - fewest
    assert deviations(int((num_targets == most).sum()), 4000, share) < 4


def test_targets_are_shown_as_mask_random_and_true_in_the_paper_s_shares(policy: MaskingPolicy) -> None:
    rows = np.stack([example_of(128, seed).input_ids for seed in range(400)])
    result = mask_rows(rows, np.arange(400), seed=1, epoch=0, policy=policy, num_columns=19)
    shown, labels = targets_of(result)
    total = shown.size
    as_mask = int((shown == policy.mask_id).sum())
    as_true = int((shown == labels).sum())
    assert deviations(as_mask, total, 0.8) < 4
    # A random token is the true one in 1 of 995 cases.
    assert deviations(as_true, total, 0.1 + 0.1 / 995) < 4
    assert deviations(total - as_mask - as_true, total, 0.1 * 994 / 995) < 4


def test_every_position_is_equally_often_a_target(policy: MaskingPolicy) -> None:
    rows = np.repeat(example_of(40).input_ids[None], 20_000, axis=0)
    result = mask_rows(rows, np.arange(20_000), seed=1, epoch=0, policy=policy, num_columns=6)
    counts = np.bincount(result.masked_positions[result.masked_labels != IGNORED_LABEL], minlength=40)
    maskable = np.delete(np.arange(40), [0, 20, 39])
    assert counts[[0, 20, 39]].sum() == 0
    assert max(deviations(int(count), 20_000, 0.15) for count in counts[maskable]) < 4.5


def test_random_replacements_are_uniform_over_the_ordinary_tokens(policy: MaskingPolicy) -> None:
    few = replace(policy, replace_with_mask_prob=0.0, replace_with_random_prob=1.0, vocab_size=15)
    rows = np.where(np.arange(64) % 63 == 0, SEP, 7)[None].repeat(5000, axis=0)
    result = mask_rows(rows, np.arange(5000), seed=1, epoch=0, policy=few, num_columns=10)
    shown, _ = targets_of(result)
    counts = np.bincount(shown.ravel(), minlength=15)
    assert counts[:5].sum() == 0
    assert max(deviations(int(count), shown.size, 0.1) for count in counts[5:]) < 4.5


@pytest.mark.parametrize("change", [{"epoch": 1}, {"seed": 1}, {"example_id": 1}])
def test_another_epoch_seed_or_example_gives_another_mask(policy: MaskingPolicy, change: dict[str, int]) -> None:
    example = example_of(128)
    first, second = masked(example, policy), masked(example, policy, **change)
    assert first.masked_positions.tolist() != second.masked_positions.tolist()


def test_word_pieces_that_continue_a_word_begin_none() -> None:
    tokenizer = Tokenizer(Vocabulary(tokens=(*SPECIAL_TOKENS, "token", "##s", "##!", ",", "##"), lowercase=True))
    assert word_starts(tokenizer)[len(SPECIAL_TOKENS) :] == [True, False, False, True, False]
