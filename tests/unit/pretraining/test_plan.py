"""The plan over the phases and the order of examples; both as properties in tests/properties."""

import numpy as np
import pytest

from bertline.foundation.errors import ConfigError
from bertline.pretraining.config import PhaseConfig
from bertline.pretraining.plan import Place, Plan, shuffled
from bertline.training.devices import Ranks


def phase(steps: int, max_length: int, global_batch_size: int) -> PhaseConfig:
    return PhaseConfig(steps=steps, max_length=max_length, global_batch_size=global_batch_size)


PHASES = [phase(3, 128, 4), phase(2, 512, 2), phase(5, 128, 8)]


def test_a_length_goes_on_where_an_earlier_phase_of_it_stopped():
    plan = Plan(PHASES, num_steps=10)
    assert [plan.place(step).phase for step in range(10)] == [0, 0, 0, 1, 1, 2, 2, 2, 2, 2]
    assert [plan.place(step).consumed for step in range(8)] == [0, 4, 8, 0, 2, 12, 20, 28]
    assert plan.place(10) == Place(phase=2, consumed=52, max_length=128, global_batch_size=8)
    assert (plan.lengths, Plan(PHASES, num_steps=3).lengths) == ((128, 512), (128,))  # those that are reached


@pytest.mark.parametrize(("first_step", "end_step"), [(0, 10), (2, 6), (3, 5), (4, 4), (5, 9)])
def test_the_sequences_of_a_stretch_are_those_of_its_steps(first_step, end_step):
    plan = Plan(PHASES, num_steps=10)
    places = [plan.place(step) for step in range(first_step, end_step)]
    expected = {
        length: sum(place.global_batch_size for place in places if place.max_length == length) for length in (128, 512)
    }
    found = plan.sequences(first_step, end_step)
    assert {length: found.get(length, 0) for length in expected} == expected


def test_only_phases_that_are_still_reached_need_a_sequence_for_each_device():
    three = Ranks(rank=0, world_size=3, local_rank=0)
    with pytest.raises(ConfigError, match=r"phases\[1\]\.global_batch_size is 2, fewer than the 3 devices"):
        Plan(PHASES, num_steps=10).require_shares(three, first_step=0)
    with pytest.raises(ConfigError, match=r"phases\[1\]"):
        Plan(PHASES, num_steps=10).require_shares(three, first_step=4)
    Plan(PHASES, num_steps=10).require_shares(three, first_step=5)
    Plan(PHASES, num_steps=3).require_shares(three, first_step=0)
    Plan(PHASES, num_steps=10).require_shares(three, first_step=10)


def test_the_order_is_well_mixed():
    size = 50_000
    order = shuffled(np.arange(size), size, seed=0, epoch=0)
    for lag in (1, 2, 64):
        assert abs(np.corrcoef(order[:-lag], order[lag:])[0, 1]) < 0.02
    assert abs(np.corrcoef(order, np.arange(size))[0, 1]) < 0.02
    # Each tenth of the epoch sees each tenth of the examples about equally often (chi-squared, 81 degrees of freedom).
    counts = np.histogram2d(np.arange(size), order, bins=10)[0]
    assert ((counts - size / 100) ** 2 / (size / 100)).sum() < 150


def test_a_billion_examples_need_no_table():
    size = 3_000_000_000
    taken = shuffled(np.array([0, size // 2, size - 1]), size, seed=0, epoch=0)
    assert ((taken >= 0) & (taken < size)).all()
    assert len(set(taken.tolist())) == 3
