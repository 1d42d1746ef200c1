import math

import pytest
import torch

import tiny
from bertline.pretraining.module import IntervalSums, training_metrics
from bertline.pretraining.objectives.base import sum_names

CPU = torch.device("cpu")
NAMES = sum_names(tiny.mlm_nsp())


def sums(*values: float) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(value) for name, value in zip(NAMES, values, strict=True)}


def counts(**numbers: int) -> dict[str, int]:
    """What of a batch is counted."""
    return {f"num_{name}": number for name, number in numbers.items()}


def take_step(interval: IntervalSums, *values: float, grad_norm: float = 1.5) -> None:
    interval.add_micro_batch(sums(*values))
    interval.add_step(torch.tensor(grad_norm), counts(targets=4, sequences=2, tokens=30, pairs=450))


def filled() -> IntervalSums:
    interval = IntervalSums(CPU, NAMES)
    interval.add_micro_batch(sums(10.0, 1.0, 2.0, 3.0))
    interval.add_micro_batch(sums(20.0, 2.0, 0.0, 1.0))
    interval.add_step(torch.tensor(4.0), counts(targets=15, sequences=6, tokens=90, pairs=1400))
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
    assert (total["timed_tokens"], total["timed_targets"], total["timed_pairs"]) == (150.0, 23.0, 2300.0)
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
