"""Seeds, rows and clusters count together: equal systems are seldom called different, and what is there is found."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bertline.foundation.verdicts import (
    FEWEST_BLOCKS,
    MOST_BLOCKS,
    Difference,
    Measured,
    adjusted,
    compared,
    measured,
    outcome,
)

NUM_CLUSTERS, NUM_SEEDS = 40, 5


def accuracy(statistics):
    return float(statistics[:, 0].mean())


def alone(num_rows):
    """Every row is its own source."""
    return [str(row) for row in range(num_rows)]


def system(statistics, sources=None, *, repeatable=False, score=accuracy):
    return measured(statistics, sources or alone(len(statistics[0])), score, repeatable=repeatable)


def runs(random, difficulty, *, seed_std=0.0, num_seeds=NUM_SEEDS, shift=0.0):
    """Row statistics of a system's seeds: right with a probability by row, all of it moved by a seed."""
    moved = difficulty + shift + seed_std * random.normal(size=(num_seeds, 1))
    return [(random.random(len(difficulty)) < seed).astype(float)[:, None] for seed in moved]


def pairs(random):
    """Difficulties of two rows of each source, alike."""
    return np.repeat(0.3 + 0.7 * random.random(NUM_CLUSTERS), 2), np.repeat(np.arange(NUM_CLUSTERS), 2).astype(str)


def share_of_verdicts(num_trials, drawn):
    """How often systems, drawn again for each trial, are called different."""
    return np.mean([compared(*drawn()).verdict != "not shown" for _ in range(num_trials)])


@pytest.mark.parametrize("seed_std", [0.0, 0.03, 0.08])
def test_equal_systems_are_called_different_in_about_five_of_a_hundred_cases(seed_std):
    random = np.random.default_rng(0)

    def drawn():
        difficulty, sources = pairs(random)
        return [system(runs(random, difficulty, seed_std=seed_std), list(sources)) for _ in range(2)]

    assert share_of_verdicts(150, drawn) <= 0.08


def normal_system(seeds, rows):
    """A system without true advantage, of normal effects of seeds [S] and of blocks of rows [B]."""
    return Measured(scores=seeds + rows.mean(), blocks=seeds[:, None] + rows, repeatable=len(seeds) == 1)


@pytest.mark.parametrize("num_random", [1, 2])
@pytest.mark.parametrize(("num_seeds", "seed_std"), [(2, 0.5), (2, 2.0), (2, 6.0), (3, 1.0), (3, 5.0), (5, 3.0)])
def test_few_seeds_whose_spread_is_small_by_chance_do_not_make_equal_systems_different(num_seeds, seed_std, num_random):
    # `seed_std` is in standard errors of the rows; the rows have 99 degrees of freedom, the seeds one to four.
    random = np.random.default_rng([num_seeds, int(10 * seed_std), num_random])

    def drawn():
        first = normal_system(seed_std * random.normal(size=num_seeds), 10 * random.normal(size=100))
        others = seed_std * random.normal(size=num_seeds) if num_random == 2 else np.zeros(1)
        return first, normal_system(others, np.zeros(100))

    assert share_of_verdicts(1200, drawn) <= 0.06


@pytest.mark.parametrize(
    "sizes", [[75, 75, *[10] * 28], [1 + 60 // rank for rank in range(1, 31)]], ids=["two large", "one over rank"]
)
def test_sources_of_very_unequal_size_do_not_make_equal_systems_different(sizes):
    random, sources = np.random.default_rng(11), np.repeat(np.arange(30), sizes)

    def drawn():
        return [system([random.normal(size=30)[sources][:, None]], list(map(str, sources)), repeatable=True)]

    assert share_of_verdicts(600, drawn) <= 0.06


def test_rows_of_one_source_are_not_counted_as_independent():
    random = np.random.default_rng(1)
    false = {"clusters": 0, "rows": 0}
    for _ in range(150):
        # What a system gets right it gets right in both rows of a source: half as much is known as it seems.
        rows = [np.repeat(random.random(NUM_CLUSTERS) < 0.6, 2).astype(float)[:, None] for _ in range(2)]
        sources = [str(row // 2) for row in range(2 * NUM_CLUSTERS)]
        for name, of_name in (("clusters", sources), ("rows", alone(2 * NUM_CLUSTERS))):
            first, second = (system([one], of_name, repeatable=True) for one in rows)
            false[name] += compared(first, second).verdict != "not shown"
    assert false["clusters"] / 150 <= 0.08
    assert false["rows"] / 150 >= 0.12


def test_a_difference_of_the_size_named_as_visible_is_found_in_nine_of_ten_repetitions():
    random = np.random.default_rng(2)
    differences = [
        compared(*(system(runs(random, pairs(random)[0], seed_std=0.02)) for _ in range(2))) for _ in range(40)
    ]
    visible = float(np.median([found.smallest_visible for found in differences]))
    found = 0
    for _ in range(150):
        difficulty, sources = pairs(random)
        better, worse = (
            system(runs(random, np.clip(difficulty - 0.2, 0, 1), seed_std=0.02, shift=shift), list(sources))
            for shift in (visible, 0.0)
        )
        found += compared(better, worse).verdict == "better"
    assert 0.8 <= found / 150 <= 0.99


def test_the_interval_leaves_out_zero_where_there_is_a_verdict_and_turns_with_the_order():
    random = np.random.default_rng(3)
    rows = random.random(400)
    first, second = (system(runs(random, np.clip(rows + shift, 0, 1), seed_std=0.01)) for shift in (0.2, -0.2))
    found, turned = compared(first, second), compared(second, first)
    assert (found.verdict, turned.verdict) == ("better", "worse")
    assert 0 < found.interval[0] < found.difference < found.interval[1]
    assert turned.interval == pytest.approx([-found.interval[1], -found.interval[0]])
    assert turned.p_value == found.p_value < 0.05


def test_without_seeds_it_is_the_paired_t_test_over_rows():
    random = np.random.default_rng(4)
    first, second = (random.random((90, 1)) for _ in range(2))
    found = compared(system([first], repeatable=True), system([second], repeatable=True))
    reference = stats.ttest_rel(first[:, 0], second[:, 0])
    assert found.p_value == pytest.approx(reference.pvalue)
    assert found.interval == pytest.approx(tuple(reference.confidence_interval()))


def test_where_rows_say_nothing_it_is_the_t_test_over_seeds():
    random = np.random.default_rng(5)
    seeds = random.normal(size=6)
    found = compared(Measured(scores=seeds, blocks=np.tile(seeds[:, None], 50), repeatable=False, num_sources=10**9))
    reference = stats.ttest_1samp(seeds, 0)
    assert found.p_value == pytest.approx(reference.pvalue)
    assert found.degrees_of_freedom == pytest.approx(5)


def ones(num_rows, **changes):
    return system([np.ones((num_rows, 1))], **{"repeatable": True, **changes})


@pytest.mark.parametrize(
    "first",
    [
        ones(200, repeatable=False),  # one seed
        ones(2, sources=["a", "a"]),
        ones(FEWEST_BLOCKS - 1),  # fewer sources than could differ in sign by chance
        system([np.array([[np.nan], *[[1.0]] * 9])], repeatable=True),
    ],
    ids=["one seed", "one source", "few sources", "no number"],
)
def test_where_the_noise_is_unknown_there_is_no_verdict(first):
    assert compared(first).verdict is None and set(compared(first).to_json()) == {"difference"}
    five = Measured(scores=first.scores.repeat(5), blocks=first.blocks.repeat(5, axis=0), repeatable=False)
    assert compared(five, first).verdict is compared(first, five).verdict is None
    assert compared(ones(FEWEST_BLOCKS)).verdict == "better"


def test_seeds_with_opposite_errors_on_few_rows_have_an_interval_as_wide_as_their_spread():
    right = np.zeros((2, 12))
    right[0, :5] = right[1, 5:] = 1  # 0.500 ± 0.118; the means over seeds are equal on all rows
    encoder, opponent = Measured(scores=right.mean(axis=1), blocks=right, repeatable=False), ones(12)
    found = compared(encoder, opponent)
    assert found.verdict == "not shown" and "two seeds are too few" in found.cause
    assert found.standard_error > np.std(encoder.scores, ddof=1) / np.sqrt(2)
    low, high = compared(encoder).interval
    assert low < encoder.scores.min() and encoder.scores.max() < high


@pytest.mark.parametrize("num_rows", [6, 12, 30, 150])
def test_an_interval_where_all_rows_are_right_reaches_as_far_as_the_rule_of_three(num_rows):
    low, high = compared(ones(num_rows)).interval
    assert 1 - low == pytest.approx(high - 1) == pytest.approx(3 / num_rows, rel=0.25)
    both = compared(ones(num_rows), ones(num_rows))
    assert both.verdict == "not shown" and both.cause == f"{num_rows} rows are too few for a verdict"
    assert both.interval == pytest.approx((low - 1, high - 1))


@pytest.mark.parametrize(("wrong", "verdict"), [(5, "not shown"), (6, "better")])
def test_against_a_system_that_is_right_on_all_rows_a_verdict_needs_what_the_exact_test_needs(wrong, verdict):
    assert bool(stats.binomtest(wrong, wrong).pvalue < 0.05) is (verdict == "better")  # McNemar's test
    for num_rows in (12, 21, 100):
        other = system([(np.arange(num_rows) >= wrong).astype(float)[:, None]], repeatable=True)
        assert compared(ones(num_rows), other).verdict == verdict


def test_with_as_many_rows_as_a_verdict_says_are_needed_the_difference_can_be_seen():
    def on(copies):
        right = [np.tile(np.arange(20) % every > 0, copies).astype(float)[:, None] for every in (3, 6)]
        return compared(*(system([rows], repeatable=True) for rows in right))

    found = on(1)
    needed = int(found.cause.rpartition("this difference takes about ")[2].replace(",", ""))
    assert found.verdict == "not shown" and on(math.ceil(needed / 20)).verdict == "worse"
    assert on(math.ceil(needed / 20)).smallest_visible == pytest.approx(-found.difference, rel=0.2)


@pytest.mark.parametrize("num_seeds", [1, 2, 5])
@pytest.mark.parametrize(("num_rows", "share"), [(6, 0.8), (8, 0.8), (12, 0.9), (21, 0.9)])
def test_equal_systems_on_few_rows_are_called_different_in_at_most_five_of_a_hundred_cases(num_rows, share, num_seeds):
    random = np.random.default_rng([num_rows, num_seeds])

    def drawn():
        for seeds in (num_seeds, 1):
            rows = (random.random((seeds, num_rows)) < share).astype(float)
            yield Measured(scores=rows.mean(axis=1), blocks=rows, repeatable=seeds == 1)

    assert share_of_verdicts(800, drawn) <= 0.05


@pytest.mark.parametrize(
    ("num_seeds", "spread", "cause"),
    [
        (2, 0.1, "two seeds are too few for a verdict: seeds=3"),
        (3, 0.2, "3 seeds are too few for a verdict: seeds=5"),
        (6, 0.3, "6 seeds are too few for a verdict: seeds=12"),
        (2, 0.001, "21 test rows are too few for a verdict"),
    ],
)
def test_where_nothing_is_shown_the_noisier_of_seeds_and_rows_is_named(num_seeds, spread, cause):
    rows, seeds = np.arange(21) % 3 > 0, spread * np.linspace(-1, 1, num_seeds)
    statistics = [rows[:, None] + seed for seed in seeds]
    encoder = measured(statistics, alone(21), accuracy, repeatable=False, rows_name="test rows")
    opponent = system([1.0 - rows[::-1, None] / 2], repeatable=True)
    found = compared(encoder, opponent)
    assert found.verdict == "not shown" and found.cause.startswith(cause)
    assert found.to_json()["cause"] == outcome(found.to_json(), {}) == found.cause
    assert compared(Measured.from_json(encoder.to_json()), opponent).cause == found.cause
    authors = [str(row // 2) for row in range(21)]
    by_author = measured(statistics, authors, accuracy, repeatable=True, rows_name="dev rows")
    assert (by_author.num_sources, by_author.sources) == (11, "groups of dev rows")
    assert compared(ones(21), system([np.zeros((21, 1))], repeatable=True)).to_json()["cause"] is None


def test_seeds_that_belong_together_are_compared_one_by_one():
    random = np.random.default_rng(7)
    rows = random.random(300)
    encoder = runs(random, rows, seed_std=0.1)
    # A system made of the encoder's own runs is right wherever these are, and in ten rows more.
    combined = [np.where(np.arange(300)[:, None] < 10, 1.0, one) for one in encoder]
    first, second = system(combined), system(encoder)
    assert compared(first, second, same_seeds=True).verdict == "better"
    assert compared(first, second).verdict == "not shown"


def test_a_score_that_is_no_mean_of_rows_has_the_noise_that_theory_gives():
    random = np.random.default_rng(8)
    correlations = []
    for _ in range(40):
        x = random.normal(size=(300, 2))
        x[:, 1] += x[:, 0]
        found = system([x], repeatable=True, score=lambda rows: float(np.corrcoef(rows.T)[0, 1]))
        correlations.append(compared(found).standard_error)
    # Standard error of a correlation r of normal variables: (1 - r²) / sqrt(n); here r² = 1/2.
    assert np.mean(correlations) == pytest.approx(0.5 / np.sqrt(300), rel=0.1)


def test_many_clusters_are_grouped_and_none_is_torn_apart():
    sources = [str(row // 3) for row in range(3000)]
    values = np.random.default_rng(9).random((3000, 1))
    found = system([values], sources, repeatable=True)
    assert found.blocks.shape == (1, MOST_BLOCKS)
    assert found.blocks.mean() == pytest.approx(values.mean())
    first_block = [row for row in range(3000) if (row // 3) % MOST_BLOCKS == 0]
    assert found.blocks[0, 0] == pytest.approx(values[first_block].mean())


def test_systems_on_other_rows_are_not_compared():
    with pytest.raises(ValueError, match="4 and 5 blocks"):
        compared(system([np.ones((4, 1))], repeatable=True), system([np.ones((5, 1))], repeatable=True))


@given(st.lists(st.none() | st.floats(0, 1), max_size=7))
def test_verdicts_on_several_pairs_are_those_of_holms_steps(p_values):
    """The smallest p-value is tested at 5 % / m, the next at 5 % / (m - 1), up to the first that is not shown."""
    shown, tested = set(), sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    for rank, (p, place) in enumerate(tested):
        if p * (len(tested) - rank) >= 0.05:
            break
        shown.add(place)
    found = adjusted([Difference(difference=-1.0, p_value=p) for p in p_values])
    assert {place for place, one in enumerate(found) if one.verdict == "worse"} == shown
    assert [one.p_value is None for one in found] == [p is None for p in p_values]
