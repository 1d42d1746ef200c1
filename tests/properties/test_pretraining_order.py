"""Promise 2: the order is a permutation of each epoch, whatever its size, and any place in it is found at once."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bertline.pretraining.config import PhaseConfig
from bertline.pretraining.plan import Plan, share_of, shuffled
from bertline.training.devices import Ranks

SEEDS = st.integers(min_value=0, max_value=2**63)
PHASES = st.lists(
    st.builds(
        PhaseConfig,
        steps=st.integers(1, 20),
        max_length=st.sampled_from([64, 128]),
        global_batch_size=st.integers(4, 40),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60)
@given(size=st.integers(1, 3000), seed=SEEDS, epoch=st.integers(0, 1000))
def test_every_epoch_is_a_permutation(size, seed, epoch):
    order = shuffled(np.arange(size), size, seed=seed, epoch=epoch)
    assert np.array_equal(np.sort(order), np.arange(size))


@settings(max_examples=60)
@given(size=st.integers(1, 2**40), seed=SEEDS, data=st.data())
def test_one_position_needs_no_other(size, seed, data):
    positions = np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=2, max_size=6)))
    together = shuffled(positions, size, seed=seed, epoch=0)
    assert [int(shuffled(positions[i : i + 1], size, seed=seed, epoch=0)[0]) for i in range(len(positions))] == list(
        together
    )


@settings(max_examples=60)
@given(phases=PHASES, world_size=st.integers(1, 4))
def test_steps_take_the_examples_of_a_length_one_after_the_other(phases, world_size):
    """Over all phases and ranks, no example of the order is left out and none taken twice."""
    plan = Plan(phases, num_steps=sum(phase.steps for phase in phases))
    taken: dict[int, list[int]] = {}
    for step in range(plan.num_steps):
        place = plan.place(step)
        for rank in range(world_size):
            share = share_of(place, Ranks(rank=rank, world_size=world_size, local_rank=rank))
            taken.setdefault(place.max_length, []).extend(share)
    for positions in taken.values():
        assert positions == list(range(len(positions)))
