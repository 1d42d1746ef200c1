"""Simulate how often the verdict of a sweep is wrong, and how often it finds a real difference.

    python benchmarks/verdicts.py                               # 4,000 simulations per setting, about two minutes
    python benchmarks/verdicts.py --seeds 5 7 9                 # how many seeds reach 0.90
    python benchmarks/verdicts.py --variants --simulations 1000 # other assumptions about rows and seeds

The simulation, for two arms A and B, with `--seeds` seeds per arm:

- 2,000 rows in 1,000 pairs, each from one source. Row i is predicted correctly with probability p_i in both arms. p is
  drawn from a Beta distribution with mean 0.65 and concentration 0.6: most rows are easy or hopeless for every run,
  as in real test sets. With probability 1/2 the two rows of a pair have the same p, otherwise p is independent.
- Every seed of every arm has an effect e, normal with the setting's standard deviation; where the arms differ, A's is
  raised by the difference. The row's probability becomes p + (1 - p) e / 0.35 for e > 0, else p + p e / 0.65, so
  that the expected accuracy of the run moves by exactly e, and no probability leaves [0, 1].
- Each run's result on each row is an independent draw with this probability.

The test is the library's own, `bertline.foundation.verdicts`, with the same groups of clusters. Settings: equal arms
with seed deviations 0, 0.01 and 0.02; arms that differ by 0.03, 0.03 and 0.06 at these deviations. `found` counts the
correct direction only. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import repository_source  # noqa: F401
from numpy.typing import NDArray
from records import current_commit

from bertline.foundation.manifests import versions_of
from bertline.foundation.verdicts import MOST_BLOCKS, Difference, Measured, compared

RESULT = Path(__file__).parent / "results" / "verdicts.json"
NUM_PAIRS, MEAN = 1000, 0.65
SEED_STDS = (0.0, 0.01, 0.02)
DIFFERENCES = (0.03, 0.03, 0.06)
FALSE_AT_MOST, FOUND_AT_LEAST = 0.06, 0.90


@dataclass(frozen=True, kw_only=True)
class World:
    """Assumptions about rows and seeds."""

    name: str = "as described"
    concentration: float | None = 0.6
    """Concentration of the Beta distribution of p; None: uniform on [0.3, 1]."""
    same_in_pair: float = 0.5
    """Probability that both rows of a pair have the same p."""
    effect: Literal["scaled", "added", "logit"] = "scaled"
    """Effect of a seed on p: as described, p + e clipped to [0, 1], or added to the logit."""
    shared_luck: float = 0.0
    """Probability that a run draws once for both rows of a pair."""


VARIANTS = (
    World(),
    World(name="rows of a pair drawn apart", same_in_pair=0.0),
    World(name="rows of a pair alike", same_in_pair=1.0),
    World(name="rows of a pair answered alike", same_in_pair=1.0, shared_luck=1.0),
    World(name="seeds move the logit", effect="logit"),
    World(name="seeds add to the probability", effect="added"),
    World(name="more rows in between", concentration=2.0),
    World(name="uniform difficulty", concentration=None),
    World(name="uniform difficulty, logit, alike", concentration=None, effect="logit", same_in_pair=1.0),
)


def main() -> None:
    """Simulate, print one line per setting, and write the record if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", type=int, default=4000, help="for each setting")
    parser.add_argument("--seeds", type=int, nargs="+", default=[5], help="seeds per arm; each number is simulated")
    parser.add_argument("--variants", action="store_true", help="other assumptions too, each named")
    parser.add_argument("--random-seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help=f"write {RESULT.relative_to(RESULT.parents[2])}")
    arguments = parser.parse_args()
    started, runs = time.monotonic(), []
    for num_seeds in arguments.seeds:
        for world in VARIANTS if arguments.variants else VARIANTS[:1]:
            runs.append(simulated(world, num_seeds, arguments.simulations, arguments.random_seed))
            print(f"{num_seeds} seeds, {world.name}: {shown(runs[-1])}", flush=True)
    enough = next((run["seeds"] for run in runs if min(run["found"]) >= FOUND_AT_LEAST and is_first(run)), None)
    content = {
        **{key: runs[0][key] for key in ("false_verdicts", "found", "smallest_visible_difference", "seeds")},
        "seeds_that_reach_0.90": enough,
        "simulations": arguments.simulations,
        "rows": 2 * NUM_PAIRS,
        "seed_stds": SEED_STDS,
        "differences": DIFFERENCES,
        "mean_accuracy": MEAN,
        "random_seed": arguments.random_seed,
        "runs": runs,
    }
    if arguments.keep:
        record = {**content, "commit": current_commit(), "versions": versions_of("numpy", "scipy")}
        RESULT.write_text(json.dumps({**record, "seconds": round(time.monotonic() - started)}, indent=2) + "\n")
    print(json.dumps(content))


def is_first(run: dict[str, object]) -> bool:
    """Return whether a run used the assumptions of the module docstring."""
    return run["world"] == asdict(VARIANTS[0])


def shown(run: dict[str, Any]) -> str:
    """Return a run as text."""
    false, found = (", ".join(f"{share:.3f}" for share in run[key]) for key in ("false_verdicts", "found"))
    return f"false verdicts {false}; found {found}"


def simulated(world: World, num_seeds: int, num_simulations: int, random_seed: int) -> dict[str, Any]:
    """Return the fractions of verdicts for equal and for different arms, and the smallest detectable differences."""
    false, found, visible = [], [], []
    for place, (std, difference) in enumerate(zip(SEED_STDS, DIFFERENCES, strict=True)):
        random = np.random.default_rng([random_seed, num_seeds, place])
        equal = [verdict(random, world, num_seeds, std, 0.0) for _ in range(num_simulations)]
        apart = [verdict(random, world, num_seeds, std, difference) for _ in range(num_simulations)]
        false.append(sum(one.verdict != "not shown" for one in equal) / num_simulations)
        found.append(sum(one.verdict == "better" for one in apart) / num_simulations)
        visible.append(round(statistics.median(one.smallest_visible or 0.0 for one in apart), 4))
    return {
        "world": asdict(world),
        "seeds": num_seeds,
        "false_verdicts": false,
        "found": found,
        "smallest_visible_difference": visible,
    }


def verdict(random: np.random.Generator, world: World, num_seeds: int, std: float, difference: float) -> Difference:
    """Simulate one sweep, with both arms on the same rows."""
    difficulty = difficulties(random, world)
    arms = [runs_of(random, world, difficulty, std * random.normal(size=num_seeds) + add) for add in (difference, 0.0)]
    return compared(*(system(right) for right in arms))


def difficulties(random: np.random.Generator, world: World) -> NDArray[np.float64]:
    """Draw the probability of a correct prediction, [pairs, 2]."""
    if world.concentration is None:
        drawn = 0.3 + 0.7 * random.random((NUM_PAIRS, 2))
    else:
        drawn = random.beta(MEAN * world.concentration, (1 - MEAN) * world.concentration, (NUM_PAIRS, 2))
    same = random.random((NUM_PAIRS, 1)) < world.same_in_pair
    return np.where(same, drawn[:, :1], drawn)


def runs_of(
    random: np.random.Generator, world: World, difficulty: NDArray[np.float64], effects: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Draw whether each run is correct on each row, [seeds, pairs, 2]."""
    e, p = effects[:, None, None], difficulty
    match world.effect:
        case "scaled":
            moved = np.where(e > 0, p + (1 - p) * e / (1 - MEAN), p + p * e / MEAN)
        case "added":
            moved = np.clip(p + e, 0, 1)
        case "logit":
            inside = np.clip(p, 1e-9, 1 - 1e-9)
            slope = float(np.mean(inside * (1 - inside)))
            moved = 1 / (1 + np.exp(-np.log(inside / (1 - inside)) - e / slope))
    luck = random.random((len(effects), *p.shape))
    if world.shared_luck:
        together = random.random((len(effects), NUM_PAIRS, 1)) < world.shared_luck
        luck = np.where(together, luck[:, :, :1], luck)
    return luck < moved


def system(right: NDArray[np.bool_]) -> Measured:
    """Return what `bertline.foundation.verdicts.measured` gives for accuracy, whose pseudo-values are block means."""
    num_seeds, num_pairs, _ = right.shape
    groups = right.sum(axis=2).reshape(num_seeds, num_pairs // MOST_BLOCKS, MOST_BLOCKS).sum(axis=1)
    blocks = groups / (2 * num_pairs / MOST_BLOCKS)
    return Measured(scores=right.mean(axis=(1, 2)), blocks=blocks, repeatable=False)


if __name__ == "__main__":
    main()
