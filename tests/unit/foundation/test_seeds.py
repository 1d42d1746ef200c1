"""Seeds are named, spread and the same everywhere."""

from __future__ import annotations

import numpy as np

from bertline.foundation.seeds import generator, seed_for, unit_interval


def test_seeds_are_the_same_in_every_version() -> None:
    assert seed_for(0, "mask", 3) == 16417936141678531808
    assert generator(1, "a").integers(1 << 30) == generator(1, "a").integers(1 << 30)


def test_types_and_groupings_do_not_collide() -> None:
    seeds = {seed_for(1), seed_for("1"), seed_for("ab", "c"), seed_for("a", "bc"), seed_for("abc"), seed_for(1, 1)}
    assert len(seeds) == 6


def test_unit_interval_is_even() -> None:
    values = np.array([unit_interval(0, "x", i) for i in range(4000)])
    assert values.min() >= 0 and values.max() < 1
    assert abs(values.mean() - 0.5) < 0.02
