import pytest
import torch

from bertline.pretraining.interval import IntervalSums, training_metrics
from bertline.pretraining.losses import PreTrainingSums

CPU = torch.device("cpu")


def sums(*values: float) -> PreTrainingSums:
    return PreTrainingSums(*(torch.tensor(value) for value in values))


def filled() -> IntervalSums:
    interval = IntervalSums(CPU)
    interval.add_micro_batch(sums(10.0, 1.0, 2.0, 3.0))
    interval.add_micro_batch(sums(20.0, 2.0, 0.0, 1.0))
    interval.add_step(grad_norm=torch.tensor(4.0), targets=15, sequences=6, tokens=90)
    return interval


def test_metrics_are_means_over_targets_and_sequences():
    metrics = training_metrics(filled().total(), nsp_weight=2.0)
    assert metrics == pytest.approx(
        {
            "train/mlm_loss": 2.0,
            "train/nsp_loss": 0.5,
            "train/loss": 3.0,
            "train/mlm_accuracy": 2 / 15,
            "train/nsp_accuracy": 4 / 6,
            "optim/grad_norm": 4.0,
        }
    )


def test_clearing_begins_anew():
    interval = filled()
    interval.clear()
    assert set(interval.total().values()) == {0.0}


def test_an_interval_cut_in_two_by_a_checkpoint_sums_up_the_same():
    whole, first = filled(), filled()
    whole.add_micro_batch(sums(0.1, 0.2, 0.3, 0.4))
    second = IntervalSums(CPU)
    second.restore(first.total(), is_first_rank=True)
    second.add_micro_batch(sums(0.1, 0.2, 0.3, 0.4))
    assert second.total() == whole.total()


def test_only_the_first_rank_carries_on_the_sums_of_all():
    other = IntervalSums(CPU)
    other.restore(filled().total(), is_first_rank=False)
    total = other.total()
    assert (total["mlm_loss"], total["targets"]) == (0.0, 0.0)
    assert (total["grad_norm"], total["steps"]) == (4.0, 1.0)
