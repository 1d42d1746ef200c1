import numpy as np
import pytest

from bertline.pretraining.plan import shuffled


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 16, 17, 1000, 4097])
def test_an_epoch_takes_every_example_once(size):
    assert sorted(shuffled(np.arange(size), size, seed=1, epoch=0).tolist()) == list(range(size))


def test_any_position_alone_gives_what_it_gives_among_all():
    whole = shuffled(np.arange(300), 300, seed=5, epoch=2)
    alone = [int(shuffled(np.array([position]), 300, seed=5, epoch=2)[0]) for position in range(300)]
    assert alone == whole.tolist()


def test_seeds_and_epochs_have_orders_of_their_own():
    orders = {
        tuple(shuffled(np.arange(100), 100, seed=seed, epoch=epoch).tolist()) for seed in range(3) for epoch in range(3)
    }
    assert len(orders) == 9


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
