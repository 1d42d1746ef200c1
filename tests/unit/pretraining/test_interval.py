import math

import numpy as np
import pytest
import torch

import tiny
from bertline.examples.packing import packed_batches
from bertline.pretraining.data import compacted
from bertline.pretraining.interval import IntervalSums, num_pairs, training_metrics
from bertline.pretraining.objectives.base import sum_names

CPU = torch.device("cpu")
NAMES = sum_names(tiny.mlm_nsp())


def sums(*values: float) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(value) for name, value in zip(NAMES, values, strict=True)}


def take_step(interval: IntervalSums, *values: float, grad_norm: float = 1.5) -> None:
    interval.add_micro_batch(sums(*values))
    interval.add_step(grad_norm=torch.tensor(grad_norm), targets=4, sequences=2, tokens=30)
    interval.add_pairs([{"lengths": torch.full((2,), 15, dtype=torch.int32)}])


def filled() -> IntervalSums:
    interval = IntervalSums(CPU, NAMES)
    interval.add_micro_batch(sums(10.0, 1.0, 2.0, 3.0))
    interval.add_micro_batch(sums(20.0, 2.0, 0.0, 1.0))
    interval.add_step(grad_norm=torch.tensor(4.0), targets=15, sequences=6, tokens=90)
    return interval


def test_metrics_are_means_over_targets_and_sequences():
    metrics = training_metrics(filled().total(), tiny.mlm_nsp(nsp_weight=2.0))
    assert metrics == pytest.approx(
        {
            "train/mlm_loss": 2.0,
            "train/nsp_loss": 0.5,
            "train/loss": 3.0,
            "train/mlm_accuracy": 2 / 15,
            "train/nsp_accuracy": 4 / 6,
            "optim/grad_norm": 4.0,
            "optim/skipped_steps": 0.0,
        }
    )


def test_clearing_starts_over():
    interval = filled()
    interval.clear()
    assert set(interval.total().values()) == {0.0}


def test_an_interval_cut_in_two_by_a_checkpoint_sums_up_to_the_same_bits():
    whole, first = filled(), filled()
    take_step(whole, 0.1, 0.2, 0.3, 0.4)
    second = IntervalSums(CPU, NAMES)
    second.restore(first.total(), is_first_rank=True)
    take_step(second, 0.1, 0.2, 0.3, 0.4)
    assert second.total() == whole.total()
    assert whole.total()["tokens"] == 120


def test_only_the_first_rank_carries_on_the_sums_of_all():
    other = IntervalSums(CPU, NAMES)
    other.restore(filled().total(), is_first_rank=False)
    total = other.total()
    assert (total["mlm_loss"], total["targets"]) == (0.0, 0.0)
    assert (total["grad_norm"], total["steps"]) == (4.0, 1.0)


@pytest.mark.parametrize("grad_norm", [math.nan, math.inf])
def test_a_step_that_the_optimizer_skips_is_counted_and_left_out(grad_norm):
    interval = filled()
    take_step(interval, math.nan, 7.0, 1.0, 1.0, grad_norm=grad_norm)
    take_step(interval, math.inf, math.nan, 1.0, 1.0, grad_norm=grad_norm)
    total = interval.total()
    assert (total["steps"], total["skipped_steps"], total["tokens"]) == (3.0, 2.0, 90.0)
    assert (total["timed_tokens"], total["timed_targets"], total["timed_pairs"]) == (150.0, 23.0, 900.0)
    skipping = training_metrics(total, tiny.mlm_nsp(nsp_weight=2.0))
    assert skipping.pop("optim/skipped_steps") == 2.0
    without = training_metrics(filled().total(), tiny.mlm_nsp(nsp_weight=2.0))
    assert skipping == {key: without[key] for key in skipping}


def test_where_all_steps_were_skipped_there_is_no_mean():
    interval = IntervalSums(CPU, NAMES)
    take_step(interval, math.nan, 1.0, 0.0, 0.0, grad_norm=math.nan)
    metrics = training_metrics(interval.total(), tiny.mlm_nsp(nsp_weight=1.0))
    assert metrics.pop("optim/skipped_steps") == 1.0
    assert all(math.isnan(value) for value in metrics.values())


def test_what_came_before_seconds_were_saved_is_in_the_tokens_and_not_in_what_is_timed():
    old = {name: value for name, value in filled().total().items() if not name.startswith("timed_")}
    interval = IntervalSums(CPU, NAMES)
    interval.restore(old, is_first_rank=True)
    take_step(interval, 0.1, 0.2, 0.3, 0.4)
    total = interval.total()
    assert total["tokens"] == 120.0
    assert (total["timed_tokens"], total["timed_targets"], total["timed_pairs"]) == (30.0, 4.0, 450.0)


def test_pairs_are_the_squares_of_the_lengths_however_rows_are_laid_out():
    lengths = np.array([3, 16, 7, 1, 9, 5])
    mask = (np.arange(16) < lengths[:, None]).astype(np.int64)
    zeros = np.zeros((6, 2), dtype=np.int64)
    batch = {
        "input_ids": mask * 7,
        "token_type_ids": mask * 0,
        "attention_mask": mask,
        "masked_positions": zeros,
        "masked_labels": zeros - 100,
        "next_sentence_labels": zeros[:, 0],
    }
    packed = list(packed_batches(batch, pad_id=0, max_targets=2, rows_per_batch=2))
    assert len(packed) == 2
    found = sum(int(num_pairs(compacted(part))) for part in packed)
    padded = int(num_pairs(compacted(batch)))
    assert found == padded == (lengths**2).sum()
    assert num_pairs({"input_ids": torch.ones(3, 16)}) == 3 * 16**2  # rows that are all full
