"""Significance tests for the difference of two systems, with the noise of seeds and of clustered
rows combined.

A score has two sources of noise: other seeds give other trained weights, and other rows of the same
kind give another score. The difference of two means over seeds has the variance

    clusters(A - B) + max(0, seeds(A) + seeds(B) - cells(A) - cells(B))

`clusters` is the variance over clusters of rows of the difference of the means over seeds: shared
difficulty cancels, and the interaction of seeds and clusters is included. `seeds` is the variance
of the seeds' scores divided by their number. It also includes that interaction (`cells`), which
must not count twice. The variance is at least `seeds`: where seeds make opposite errors, their
means over seeds are equal on all rows, and `clusters` is 0.

Where no row differs from the others, as of a system that is right on all, their spread is 0 and
says nothing. By the rule of three, up to 3 / N of all rows may differ: with the variance 2 / N²,
the interval reaches as far.

Few seeds give a poor estimate of `seeds`, often one that is far too small by chance. A t
distribution whose degrees of freedom follow from the two estimates (Satterthwaite) then counts the
rows alone: with two seeds it calls equal systems different in up to 13 % of cases. Each part
therefore keeps its own quantile of Student's t, and the 95 % interval joins them in proportion to
their variances. Clusters of unequal size count as fewer clusters (Kish's effective number).

References: Two-way clustered variance: Cameron, Gelbach and Miller, "Robust Inference With Multiway
Clustering", 2011, section 2.2. A quantile for each part: Cochran, "Approximate Significance Levels
of the Behrens-Fisher Test", 1964; here the squares are joined, as in Graybill and Wang, "Confidence
Intervals on Nonnegative Linear Combinations of Variances", 1980. Unequal clusters: Kish, "Survey
Sampling", 1965, section 8.2. Scores that are not means of rows: the jackknife over groups of
clusters, Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 11. No row that
differs: Hanley and Lippman-Hand, "If Nothing Goes Wrong, Is Everything All Right?", 1983. How often
it is wrong, and what it finds: `benchmarks/verdicts.py`.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

Verdict = Literal["better", "worse", "not shown"]

AS_NUMBER: Mapping[Verdict, int] = {"better": 1, "not shown": 0, "worse": -1}
"""Verdicts in metrics, such as `beats_random_weights`; a comparison without a verdict has no
metric."""
SIGNIFICANT = 0.05
POWER = 0.9
"""Probability of detecting a true difference of the size `smallest_visible`."""
FEWEST_BLOCKS = 6
"""Minimum number of blocks for a test. With fewer, chance alone gives all blocks the same sign in
more than 5 % of cases, 2^(1 - B): whatever their spread seems to be, no difference can be shown."""
NOISE_UNKNOWN = f"how large the noise is was not measured (one seed, or fewer than {FEWEST_BLOCKS} sources of rows)"
"""Part of a message for results without a verdict."""
MOST_BLOCKS = 200
"""Maximum number of blocks; more clusters are merged into this many: 199 degrees of freedom widen
an interval by only 0.6 %."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Measured:
    """Scores of a system for S seeds, and the contributions of B blocks of rows to them."""

    scores: NDArray[np.float64]
    """Score of each seed, [S]."""
    blocks: NDArray[np.float64]
    """Jackknife pseudo-values, [S, B]: their mean over blocks is about the score, their spread its
    noise over rows."""
    repeatable: bool
    """Whether the system is deterministic, so that one run suffices; otherwise one run leaves its
    spread unknown."""
    effective_blocks: float | None = None
    """Number of blocks of equal size that say as much about the noise of rows; None: B, all have
    the same size."""
    num_sources: int | None = None
    """Number of independent sources of rows; None: B."""
    sources: str = "rows"
    """What the sources are, in words: `test rows`, or `groups of test rows`."""

    @property
    def mean(self) -> float:
        """Mean score over the seeds."""
        return float(np.mean(self.scores))

    @property
    def is_testable(self) -> bool:
        """Whether the noise is known: several seeds or a deterministic system, `FEWEST_BLOCKS`,
        finite scores."""
        seeds_known = self.repeatable or len(self.scores) > 1
        finite = np.isfinite(self.scores).all() and np.isfinite(self.blocks).all()
        return bool(seeds_known and self.blocks.shape[1] >= FEWEST_BLOCKS and finite)

    def minus(self, other: Self) -> Self:
        """Return the difference per seed of two systems with paired seeds (one is derived from the
        other's runs)."""
        return dataclasses.replace(
            self,
            scores=self.scores - other.scores,
            blocks=self.blocks - other.blocks,
            repeatable=self.repeatable and other.repeatable,
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain data, rounded to eight decimal places."""
        return {
            "scores": np.round(self.scores, 8).tolist(),
            "blocks": np.round(self.blocks, 8).tolist(),
            "repeatable": self.repeatable,
            "effective_blocks": self.effective_blocks,
            "num_sources": self.num_sources,
            "sources": self.sources,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Return the object of a `to_json` result."""
        return cls(
            scores=np.asarray(content["scores"], dtype=np.float64),
            blocks=np.asarray(content["blocks"], dtype=np.float64),
            repeatable=bool(content["repeatable"]),
            # Older files lack these.
            **{key: content[key] for key in ("effective_blocks", "num_sources", "sources") if key in content},
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Score of one system minus that of another; all fields except the difference are None if the
    noise is unknown."""

    difference: float
    standard_error: float | None = None
    degrees_of_freedom: float | None = None
    """Degrees of freedom of the t distribution that gives the interval."""
    p_value: float | None = None
    """Two-sided p-value: probability that noise alone gives a difference at least this large."""
    interval: tuple[float, float] | None = None
    """95 % confidence interval of the difference."""
    smallest_visible: float | None = None
    """Size of a true difference that would be detected in nine of ten repetitions."""
    cause: str | None = None
    """What to say should nothing be shown: that the seeds, or the rows, whichever are noisier, are
    too few, and how many are needed."""

    @property
    def verdict(self) -> Verdict | None:
        """Verdict on the first system; None if the noise is unknown, for example with one seed."""
        if self.p_value is None:
            return None
        if self.p_value >= SIGNIFICANT:
            return "not shown"
        return "better" if self.difference > 0 else "worse"

    def to_json(self) -> dict[str, Any]:
        """Return plain data; unknown values are left out."""
        if self.p_value is None:
            return {"difference": self.difference}
        cause = self.cause if self.verdict == "not shown" else None
        changes = {"interval": list(self.interval or ()), "cause": cause, "verdict": self.verdict}
        return {**dataclasses.asdict(self), **changes}


def measured(
    statistics: Sequence[NDArray[np.float64]],
    clusters: Sequence[str],
    score: Callable[[NDArray[np.float64]], float],
    *,
    repeatable: bool,
    rows_name: str = "rows",
) -> Measured:
    """Compute the scores, and the contributions of blocks of clusters by the jackknife (leaving out
    each block).

    Args:
        statistics: Row statistics [N, K] of each seed, with rows in the same order.
        clusters: Source of each row, [N]; rows of one source are not independent.
        score: Computes a score from the statistics of rows.
        rows_name: What the rows are called in a message, such as `test rows`.

    >>> rows = np.array([[1.0], [0.0], [1.0], [1.0]])
    >>> found = measured([rows], ["a", "a", "b", "b"], lambda kept: float(kept.mean()), repeatable=True)
    >>> found.scores.tolist(), found.blocks.tolist()
    ([0.75], [[0.5, 1.0]])
    """
    block = _blocks(clusters)
    num_blocks = int(block.max(initial=-1)) + 1
    other_rows = [np.flatnonzero(block != number) for number in range(num_blocks)] if num_blocks > 1 else []
    scores = np.array([score(rows) for rows in statistics])
    without = np.array([[score(rows[others]) for others in other_rows] for rows in statistics])
    pseudo = num_blocks * scores[:, None] - (num_blocks - 1) * without.reshape(len(scores), len(other_rows))
    sizes = np.bincount(block)
    effective = float(sizes.sum()) ** 2 / float((sizes**2).sum()) if len(sizes) else 0.0
    num_sources = len(set(clusters))
    return Measured(
        scores=scores,
        blocks=pseudo,
        repeatable=repeatable,
        effective_blocks=effective,
        num_sources=num_sources,
        sources=rows_name if num_sources == len(clusters) else f"groups of {rows_name}",
    )


def compared(first: Measured, second: Measured | None = None, *, same_seeds: bool = False) -> Difference:
    """Compare two systems on the same rows: first minus second, with the noise of seeds and rows.

    Without a second system, the first is compared with 0, which gives the interval of its score.
    `same_seeds` says that the seeds of the two are paired. Systems that were measured on different
    blocks of rows raise a ValueError.
    """
    if second is not None and first.blocks.shape[1] != second.blocks.shape[1]:
        raise ValueError(f"{first.blocks.shape[1]} and {second.blocks.shape[1]} blocks of rows cannot be compared")
    if second is not None and same_seeds:
        return compared(first.minus(second))
    systems = [first] if second is None else [first, second]
    difference = first.mean - (0.0 if second is None else second.mean)
    if not all(system.is_testable for system in systems):
        return Difference(difference=difference)
    means = [system.blocks.mean(axis=0) for system in systems]
    rows = means[0] if second is None else means[0] - means[1]
    of_rows, num_sources = float(rows.var(ddof=1)) / len(rows), first.num_sources or len(rows)
    size = float(np.abs(means).max()) or 1.0
    if any(np.ptp(values) <= 1e-9 * size for values in (rows, *means)):  # equal but for rounding errors
        of_rows += 2 * (size / num_sources) ** 2
    with_seeds = [system for system in systems if len(system.scores) > 1]
    # The variance of the mean over seeds, and its degrees of freedom.
    of_seeds = [(float(each.scores.var(ddof=1)) / len(each.scores), len(each.scores) - 1) for each in with_seeds]
    seeds = sum(of_system for of_system, _ in of_seeds)
    variance = max(seeds, of_rows + max(0.0, seeds - sum(map(_cell_variance, with_seeds))))
    effective = min(system.effective_blocks or len(rows) for system in systems)
    degrees, seeds_are_noisier = _degrees(variance, max(1.0, effective - 1), of_seeds)
    tested = _tested(difference, math.sqrt(variance), degrees)
    cause = f"{num_sources:,} {first.sources} are too few for a verdict"
    visible = tested.smallest_visible or math.inf
    if abs(difference) > visible / 100:  # the standard error falls with the root of the number of rows
        needed = num_sources * (visible / difference) ** 2
        cause += f": this difference takes about {int(float(f'{needed:.2g}')):,}"
    if seeds_are_noisier:
        numbers = sorted(len(system.scores) for system in with_seeds)
        cause = f"{'two' if numbers[0] == 2 else numbers[0]} seeds are too few for a verdict"
        if numbers[0] == numbers[-1]:  # an arm may have fewer than the others, by a key of its own
            more = {2: 3, 3: 5, 4: 5}.get(numbers[0], 2 * numbers[0])
            cause += f": seeds={more} (sweep.num_seeds in a pipeline)"
    return dataclasses.replace(tested, cause=cause)


def outcome(found: Mapping[str, Any], words: Mapping[str, str]) -> str:
    """Return a comparison, `Difference.to_json`, in words by verdict, or what is too few for one."""
    return found.get("cause") or words[found["verdict"]]


def adjusted(differences: Sequence[Difference]) -> list[Difference]:
    """Adjust the p-values, and so the verdicts, of several comparisons: the chance of any false one
    stays 5 %.

    The intervals are not adjusted.

    Reference: Holm, "A Simple Sequentially Rejective Multiple Test Procedure", 1979, section 2.
    """
    tested = sorted((one.p_value, place) for place, one in enumerate(differences) if one.p_value is not None)
    result, largest = list(differences), 0.0
    for rank, (p_value, place) in enumerate(tested):
        largest = max(largest, min(1.0, (len(tested) - rank) * p_value))
        result[place] = dataclasses.replace(differences[place], p_value=largest)
    return result


def _tested(difference: float, error: float, degrees: float) -> Difference:
    from scipy.special import stdtr, stdtrit  # takes a third of a second, and every command imports this module

    reach = float(stdtrit(degrees, 1 - SIGNIFICANT / 2)) * error
    return Difference(
        difference=difference,
        standard_error=error,
        degrees_of_freedom=degrees,
        p_value=min(1.0, 2 * float(stdtr(degrees, -abs(difference) / error))),
        interval=(difference - reach, difference + reach),
        smallest_visible=reach + float(stdtrit(degrees, POWER)) * error,
    )


def _degrees(variance: float, row_degrees: float, of_seeds: Sequence[tuple[float, int]]) -> tuple[float, bool]:
    """Return the degrees of freedom of the t distribution whose square quantile is the weighted
    mean of the parts', and whether the part of the seeds is the larger one.

    The weight of the seeds is their share of the variance, their interaction with rows included: it
    is small by chance only if all of it is.
    """
    from scipy.special import stdtridf, stdtrit

    seeds = sum(of_system for of_system, _ in of_seeds)
    if seeds <= 1e-12 * variance:
        return row_degrees, False
    share = seeds / variance
    # Welch for two systems; the square of a variance estimate with f degrees is (f + 2) / f times
    # too large on average.
    seed_degrees = seeds**2 / sum(of_system**2 / (known + 2) for of_system, known in of_seeds) - 2
    seed_degrees = min(seed_degrees, sum(known for _, known in of_seeds))
    rows_t, seeds_t = (float(stdtrit(degrees, 1 - SIGNIFICANT / 2)) for degrees in (row_degrees, seed_degrees))
    of_rows, of_seeds_alone = (1 - share) * rows_t**2, share * seeds_t**2
    degrees = float(stdtridf(1 - SIGNIFICANT / 2, math.sqrt(of_rows + of_seeds_alone)))
    return degrees, of_seeds_alone > of_rows


def _cell_variance(system: Measured) -> float:
    """Return the part of the variance of the mean over seeds that comes from the interaction of
    seeds and blocks."""
    blocks, (num_seeds, num_blocks) = system.blocks, system.blocks.shape
    left = blocks - blocks.mean(axis=0) - blocks.mean(axis=1, keepdims=True) + blocks.mean()
    return float((left**2).sum()) / ((num_seeds - 1) * (num_blocks - 1)) / num_blocks / num_seeds


def _blocks(clusters: Sequence[str]) -> NDArray[np.int64]:
    """Return the block of each row; clusters are assigned to blocks in turn, in the order of their
    first row.

    >>> _blocks(["a", "b", "a", "c"]).tolist()
    [0, 1, 0, 2]
    """
    number: dict[str, int] = {}
    for cluster in clusters:
        number.setdefault(cluster, len(number))
    return np.array([number[cluster] % MOST_BLOCKS for cluster in clusters], dtype=np.int64)
