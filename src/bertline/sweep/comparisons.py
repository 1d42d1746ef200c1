"""Comparisons of the encoder with the other arms and the baselines, and the sentence that concludes from them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertline.foundation.formats import count, short_title, signed, with_spread
from bertline.foundation.verdicts import NOISE_UNKNOWN, Difference, Measured, adjusted, compared, measured
from bertline.sweep.baseline_scores import ScoredBaseline
from bertline.sweep.bench import kind_of, test_splits
from bertline.sweep.job import Arm, PlannedSweep
from bertline.sweep.repetitions import Repetition, is_random
from bertline.tasks.metrics.names import metric_name
from bertline.tasks.stored_rows import SplitName

ENCODER, COMBINED = "encoder", "combined"
"""`combined` is computed from the encoder's runs, so the seeds of the two are paired."""


System = tuple[Sequence[NDArray[np.float64]], bool]
"""Row statistics [N, K] of each seed of an arm or a baseline on one split, and whether it is deterministic, so that one
run suffices."""


@dataclass(frozen=True, slots=True)
class Comparisons:
    """Scores of all arms and baselines on one test split."""

    measured: dict[str, Measured]

    def interval(self, name: str) -> tuple[float, float] | None:
        """Return the 95 % confidence interval of a system's mean score; None if its noise is unknown."""
        return compared(self.measured[name]).interval

    def against(self, name: str, first: str = ENCODER) -> Difference:
        """Compare two systems: the score of `first` minus that of `name`."""
        same_seeds = {name, first} == {ENCODER, COMBINED}
        return compared(self.measured[first], self.measured[name], same_seeds=same_seeds)

    def pairs(self) -> dict[tuple[str, str], Difference]:
        """Compare every two encoders; the verdicts are adjusted to the number of pairs."""
        pairs = [*itertools.combinations([name for name in self.measured if name.startswith(ENCODER)], 2)]
        return dict(zip(pairs, adjusted([self.against(name, first) for first, name in pairs]), strict=True))

    def with_encoder(self) -> dict[str, dict[str, Any]]:
        """Return the comparisons of the encoder with all other systems, as plain data."""
        pairs, others = self.pairs(), [name for name in self.measured if name != ENCODER]
        return {name: pairs.get((ENCODER, name), self.against(name)).to_json() for name in others}


def comparisons_by_split(
    plan: PlannedSweep, winners: Mapping[Arm, Sequence[Repetition]], baselines: Sequence[ScoredBaseline]
) -> dict[SplitName, Comparisons]:
    """Measure the winners of all arms and the baselines on every test split."""
    found: dict[SplitName, Comparisons] = {}
    for split in test_splits(plan.job):
        systems: dict[str, System] = {}
        for arm, seeds in winners.items():
            statistics = [seed.test_statistics(plan.job, split) for seed in seeds]
            systems[arm] = statistics, not is_random(plan, arm, seeds[0].params)
        systems |= {one.name: ([one.test_statistics[split]], True) for one in baselines}
        found[split] = Comparisons(_measured(plan, split, systems))
    return found


def on_dev(plan: PlannedSweep, seeds: Sequence[Repetition]) -> Measured:
    """Return the winner's scores on dev, by which versions of a model are compared later."""
    statistics = [seed.dev_statistics(plan.job) for seed in seeds]
    system = statistics, not is_random(plan, seeds[0].arm, seeds[0].params)
    return _measured(plan, "dev", {ENCODER: system})[ENCODER]


def _measured(plan: PlannedSweep, split: SplitName, systems: Mapping[str, System]) -> dict[str, Measured]:
    # Row statistics have the same meaning in every arm (only the encoding differs), so one task kind scores them all.
    kind = kind_of(plan.job, plan.starts["encoder"])
    sources = kind.read(plan.job.task_folder, split).sources()
    return {
        name: measured(of_seeds, sources, kind.score, repeatable=repeatable)
        for name, (of_seeds, repeatable) in systems.items()
    }


def encoders_part(result: Mapping[str, Any], pairs: Mapping[tuple[str, str], Difference]) -> dict[str, Any]:
    """Return the `encoders` part of result.json, which is empty for one encoder.

    Returns:
        `pairs`: the comparison on test of every two encoders, `first` minus `second`; `tables`: of the encoders and of
        the pairs, a head and rows each; `sentence`: which is exported, and which cannot be told from it.
    """
    if not pairs:
        return {"pairs": [], "tables": [], "sentence": ""}
    arms = {name: arm for name, arm in result["arms"].items() if name.startswith(ENCODER)}
    titles = {name: short_title(arm["title"]) for name, arm in arms.items()}
    rows, outcomes, equals = [], [], []
    for name, arm in arms.items():
        scores = (with_spread(arm[f"{split}_mean"], arm[f"{split}_std"]) for split in ("dev", "test"))
        rows.append([titles[name], count(arm["num_parameters"]), *scores, f"{arm['ms_per_row']:.2f}"])
    for (first, second), found in pairs.items():
        noise = [" to ".join(map(signed, found.interval)), f"{found.p_value:.2g}"] if found.interval else ["–", "–"]
        better = {"better": titles[first], "worse": titles[second], "not shown": "none shown", None: "not known"}
        outcomes.append([titles[first], titles[second], signed(found.difference), *noise, better[found.verdict]])
        equals += [titles[second]] if first == ENCODER and found.verdict in ("not shown", None) else []
    best, metric = max(arms, key=lambda name: arms[name]["dev_mean"]), metric_name(result["metric"])
    exported = "and is exported" if best == ENCODER else f"and {titles[ENCODER]} is exported"
    said = f"Of {len(arms)} encoders, {titles[best]} has the best mean on dev {exported}. "
    said += f"On test, what is exported cannot be told from {', '.join(equals) or 'none of the others'}."
    heads = ["encoder", "parameters", f"dev {metric}", f"test {metric}", "ms per row"]
    heads_of_pairs = ["encoder", "minus", f"test {metric}", "95 % interval", "p (Holm)", "better"]
    shown = [{"first": first, "second": second, **found.to_json()} for (first, second), found in pairs.items()]
    return {"pairs": shown, "tables": [[heads, rows], [heads_of_pairs, outcomes]], "sentence": said}


def strongest_opponent(baselines: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the name of the baseline with the best dev score, the first of equals.

    >>> strongest_opponent({"majority": {"dev": 0.1}, "bm25": {"dev": 0.4}})
    'bm25'
    """
    dev = {name: float(one["dev"]) for name, one in baselines.items()}
    return max(dev, key=lambda name: (dev[name] == dev[name], dev[name]), default=None)  # NaN ranks last


def conclusion(result: Mapping[str, Any], comparisons: Comparisons) -> dict[str, Any]:
    """Return the `conclusion` part of result.json.

    Returns:
        `opponent` (name; None if there is no baseline), `title`, the comparisons of `encoder` and, if it was run, of
        `combined` with the opponent, and `sentence`, which is shown in the report, the model card and the terminal.
    """
    name = strongest_opponent(result["baselines"])
    if name is None:
        score = f"{metric_name(result['metric'])} {_mean(result, ENCODER)}"
        said = f"On {result['task']} the encoder has {score}; no simple method was tried."
        said += _left_out(result["arms"][ENCODER])
        return {"opponent": None, "title": None, "sentence": said}
    systems = [system for system in (ENCODER, COMBINED) if system in comparisons.measured]
    found = {system: comparisons.against(name, first=system) for system in systems}
    return {
        "opponent": name,
        "title": result["baselines"][name]["title"],
        **{system: difference.to_json() for system, difference in found.items()},
        "sentence": _sentence(result, name, found),
    }


def _sentence(result: Mapping[str, Any], name: str, found: Mapping[str, Difference]) -> str:
    opponent = result["baselines"][name]
    who = "the encoder alone" if COMBINED in found else "the encoder"
    against = f"{opponent['test']:.3f} for {opponent['title']}, the strongest simple opponent"
    score = f"{metric_name(result['metric'])} {_mean(result, ENCODER)} against {against}"
    said = f"On {result['task']} {_clause(who, score, found[ENCODER])}"
    if COMBINED in found:
        both = f"{_mean(result, COMBINED)} against the same"
        said += f"; {_clause('the encoder combined with BM25', both, found[COMBINED])}"
    return f"{said}.{_left_out(result['arms'][ENCODER])}"


def _left_out(encoder: Mapping[str, Any]) -> str:
    """Return a sentence on diverged seeds, which the scores leave out; empty if there are none.

    >>> _left_out({"num_diverged": 1, "seeds": [{}, {}]}), _left_out({"seeds": [{}]})
    (' 1 of its 3 seeds diverged and is left out of this.', '')
    """
    if not (number := encoder.get("num_diverged", 0)):
        return ""
    return (
        f" {number} of its {number + len(encoder['seeds'])} seeds diverged and "
        f"{'is' if number == 1 else 'are'} left out of this."
    )


def _clause(who: str, score: str, found: Difference) -> str:
    if found.interval is None or found.smallest_visible is None:
        return f"{who} has {score}, and {NOISE_UNKNOWN}"
    low, high = found.interval
    details = f"difference {signed(found.difference)}, 95 % interval {signed(low)} to {signed(high)}"
    match found.verdict:
        case "better":
            return f"{who} wins: {score} ({details})"
        case "worse":
            return f"{who} loses: {score} ({details})"
        case _:
            # This difference is 0 if all runs got the same rows right.
            seen = f"the smallest difference this sweep could have seen is {found.smallest_visible:.3f}"
            return f"it cannot be told whether {who} wins or loses: {score} ({details}; {seen})"


def _mean(result: Mapping[str, Any], system: str) -> str:
    arm = result["arms"][system]
    return with_spread(arm["test_mean"], arm["test_std"])
