"""Promise 3 over a whole training: the loss is that of the global batch, however many ranks share it unequally."""

from rank_curves import assert_same_curves


def test_four_ranks_give_the_curve_of_one(tmp_path):
    assert_same_curves(tmp_path, [4], {}, rel=1e-3)
