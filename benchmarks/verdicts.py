"""Simulate how often the verdict of a sweep is wrong, and how often it finds a real difference.

    python benchmarks/verdicts.py                               # 4,000 simulations per setting, about four minutes
    python benchmarks/verdicts.py --seeds 7 9 --worlds pairs    # other numbers of seeds

The simulation, for an encoder with `--seeds` seeds, and an opponent that is deterministic (one run) or has as many:

- 2,000 rows. Row i is predicted correctly with probability p_i in both arms. p is drawn from a Beta distribution with
  mean 0.65 and concentration 0.6: most rows are easy or hopeless for every run, as in real test sets. With probability
  1/2 a row has the p of its source, otherwise a p of its own.
- World `pairs`: 1,000 sources of two rows. World `unequal sources`: 150 sources, number r with a share of rows
  proportional to 1 / r (the largest has 18 %, and ten have half of all); an arm's p is raised on each source by an
  effect of its own, normal with standard deviation 0.1, since systems differ by source. The test rows of the default
  tasks come from 230 to 350 modules with up to 4 % of the rows; SQuAD's dev has articles with up to 8 %.
- Every seed of an arm has an effect e, normal with the setting's standard deviation; where the arms differ, the
  encoder's is raised by the difference. The row's probability becomes p + (1 - p) e / 0.35 for e > 0, else
  p + p e / 0.65, so that the expected accuracy of the run moves by exactly e. Probabilities are clipped to [0, 1].
- Each run's result on each row is an independent draw with this probability.

The test is the library's own, `bertline.foundation.verdicts`, with the same groups of clusters. Settings: equal arms
with seed deviations 0, 0.01, 0.02 and 0.03; arms that differ by 0.03, 0.03, 0.06 and 0.09 at these deviations, with a
quarter of the simulations. `found` counts the correct direction only; `smallest_visible_difference` is the median of
what the verdicts themselves say they find in nine of ten repetitions. The last line is JSON.
"""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from measurements import keep, parser_of
from numpy.typing import NDArray

from bertline.foundation.manifests import versions_of
from bertline.foundation.verdicts import MOST_BLOCKS, Difference, Measured, compared

NUM_ROWS, MEAN = 2000, 0.65
CONCENTRATION = 0.6
"""Of the Beta distribution of p."""
SAME_IN_SOURCE = 0.5
"""Probability that a row has the p of its source."""
SEED_STDS = (0.0, 0.01, 0.02, 0.03)
DIFFERENCES = (0.03, 0.03, 0.06, 0.09)
FOUND_AT_LEAST = 0.90


@dataclass(frozen=True, kw_only=True)
class World:
    """Assumptions about rows and seeds."""

    name: str = "pairs"
    num_sources: int = 1000
    unequal: bool = False
    """Whether the shares of the sources are proportional to 1 / rank; otherwise they are equal."""
    source_std: float = 0.0
    """Standard deviation of an arm's effect on a source."""

    def sources(self) -> NDArray[np.int64]:
        """Return the source of each row, sorted, [rows]."""
        shares = 1 / np.arange(1, self.num_sources + 1) if self.unequal else np.ones(self.num_sources)
        ends = np.cumsum(shares) / shares.sum() * NUM_ROWS
        return np.searchsorted(ends, np.arange(NUM_ROWS) + 0.5)


WORLDS = (World(), World(name="unequal sources", num_sources=150, unequal=True, source_std=0.1))


def main() -> None:
    """Simulate, print one line per setting, and write the record if asked."""
    parser = parser_of(__doc__)
    parser.add_argument("--simulations", type=int, default=4000, help="for each setting")
    parser.add_argument("--seeds", type=int, nargs="+", default=[2, 3, 4, 5], help="of an arm; each is simulated")
    parser.add_argument("--worlds", nargs="+", choices=[world.name for world in WORLDS], help="only these")
    parser.add_argument("--random-seed", type=int, default=0)
    arguments = parser.parse_args()
    started, runs = time.monotonic(), []
    worlds = [world for world in WORLDS if world.name in (arguments.worlds or [world.name])]
    for world in worlds:
        for num_seeds in arguments.seeds:
            for num_arms in (1, 2):
                runs.append(simulated(world, num_seeds, num_arms, arguments.simulations, arguments.random_seed))
                print(f"{world.name}, {num_seeds} seeds, {num_arms} random: {shown(runs[-1])}", flush=True)
    content = {
        "false_verdicts_at_most": max(max(run["false_verdicts"]) for run in runs),
        "seeds_that_reach_0.90": next(
            (run["seeds"] for run in runs if run["random_arms"] == 2 and min(run["found"]) >= FOUND_AT_LEAST), None
        ),
        "simulations": arguments.simulations,
        "rows": NUM_ROWS,
        "seed_stds": SEED_STDS,
        "differences": DIFFERENCES,
        "mean_accuracy": MEAN,
        "random_seed": arguments.random_seed,
        "worlds": {world.name: asdict(world) for world in worlds},
        "runs": runs,
    }
    about = {"versions": versions_of("numpy", "scipy"), "seconds": round(time.monotonic() - started)}
    keep("verdicts", {**content, **about}, arguments)
    print(json.dumps(content))


def shown(run: dict[str, Any]) -> str:
    """Return a run as text."""
    names = ("false_verdicts", "found", "smallest_visible_difference")
    return "; ".join(f"{name.replace('_', ' ')} {', '.join(f'{value:.3f}' for value in run[name])}" for name in names)


def simulated(world: World, num_seeds: int, num_arms: int, num_simulations: int, random_seed: int) -> dict[str, Any]:
    """Return the fractions of verdicts for equal and for different arms, and the smallest detectable differences.

    Args:
        world: Assumptions.
        num_seeds: Seeds of each arm with several.
        num_arms: 1: the opponent is deterministic; 2: it has seeds as the encoder has.
        num_simulations: Simulations of equal arms.
        random_seed: Seed of the simulation.
    """
    false, found, visible = [], [], []
    sources = world.sources()
    for place, (std, difference) in enumerate(zip(SEED_STDS, DIFFERENCES, strict=True)):
        random = np.random.default_rng([random_seed, num_seeds, num_arms, place])
        equal, apart = (
            [verdict(random, world, sources, (num_seeds, num_arms), (std, effect)) for _ in range(number)]
            for effect, number in ((0.0, num_simulations), (difference, max(1, num_simulations // 4)))
        )
        false.append(sum(one.verdict != "not shown" for one in equal) / len(equal))
        found.append(sum(one.verdict == "better" for one in apart) / len(apart))
        visible.append(round(statistics.median(one.smallest_visible or 0.0 for one in equal), 4))
    return {
        "world": world.name,
        "seeds": num_seeds,
        "random_arms": num_arms,
        "false_verdicts": false,
        "found": found,
        "smallest_visible_difference": visible,
    }


def verdict(
    random: np.random.Generator,
    world: World,
    sources: NDArray[np.int64],
    numbers: tuple[int, int],
    effects: tuple[float, float],
) -> Difference:
    """Simulate one sweep, with both arms on the same rows.

    Args:
        random: Generator.
        world: Assumptions.
        sources: `world.sources()`.
        numbers: Seeds of an arm, and arms that have several.
        effects: Standard deviation of seeds, and the difference.
    """
    (num_seeds, num_arms), (std, difference) = numbers, effects
    difficulty = difficulties(random, world, sources)
    arms = []
    for place in range(2):
        repeatable = place == 1 and num_arms == 1
        seeds = np.zeros(1) if repeatable else std * random.normal(size=num_seeds)
        effect = seeds[:, None] + (difference if place == 0 else 0.0)
        if world.source_std:
            effect = effect + world.source_std * random.normal(size=world.num_sources)[sources]
        right = runs_of(random, difficulty, effect)
        arms.append(system(right, sources, repeatable=repeatable))
    return compared(*arms)


def difficulties(random: np.random.Generator, world: World, sources: NDArray[np.int64]) -> NDArray[np.float64]:
    """Draw the probability of a correct prediction, [rows]."""
    number = NUM_ROWS + world.num_sources
    drawn = random.beta(MEAN * CONCENTRATION, (1 - MEAN) * CONCENTRATION, number)
    same = random.random(NUM_ROWS) < SAME_IN_SOURCE
    return np.where(same, drawn[NUM_ROWS:][sources], drawn[:NUM_ROWS])


def runs_of(random: np.random.Generator, p: NDArray[np.float64], e: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Draw whether each run is correct on each row, [seeds, rows], for effects [seeds, 1 or rows]."""
    moved = np.where(e > 0, p + (1 - p) * e / (1 - MEAN), p + p * e / MEAN)
    return random.random((len(e), NUM_ROWS)) < moved


def system(right: NDArray[np.bool_], sources: NDArray[np.int64], *, repeatable: bool) -> Measured:
    """Return what `bertline.foundation.verdicts.measured` gives for accuracy, by sums over blocks: it is faster."""
    block = sources % MOST_BLOCKS
    sizes = np.bincount(block)
    sums = np.stack([np.bincount(block, weights=run) for run in right])
    scores = right.mean(axis=1)
    without = (scores[:, None] * NUM_ROWS - sums) / (NUM_ROWS - sizes)
    return Measured(
        scores=scores,
        blocks=len(sizes) * scores[:, None] - (len(sizes) - 1) * without,
        repeatable=repeatable,
        effective_blocks=NUM_ROWS**2 / float((sizes**2).sum()),
    )


if __name__ == "__main__":
    main()
