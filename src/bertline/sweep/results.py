"""Artifact of a sweep: result.json, tables of predictions, and the best model."""

from __future__ import annotations

import hashlib
import itertools
import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from optuna.trial import FrozenTrial, TrialState

from bertline.finetuning.task_file import write_task_file
from bertline.foundation import verdicts
from bertline.foundation.files import folder_written_atomically, read_json, sha256_of_file, write_json
from bertline.foundation.formats import count, short_title, signed, with_spread
from bertline.foundation.manifests import versions_of, write_manifest
from bertline.kinds.registry import task_kind
from bertline.sweep.baseline_scores import DOUBTFUL, SAVED, ScoredBaseline, label_sets_of
from bertline.sweep.bench import Arm, PlannedSweep, kind_of, split_sizes, test_splits
from bertline.sweep.folds import has_folds, rows_of
from bertline.sweep.job import SweepJob
from bertline.sweep.label_curve import label_curve
from bertline.sweep.repetitions import (
    MODEL,
    PREDICTIONS,
    STATISTICS,
    TEACHER_SCORES,
    TEST,
    Repetition,
    best_seed,
    file_of,
    is_random,
)
from bertline.sweep.studies import curve_of, importances, last_dev
from bertline.tasks.metrics import metric_name, score_range
from bertline.tasks.stored_rows import SplitName, read_task_manifest
from bertline.tokenization.storage import copy_tokenizer

ENCODER, COMBINED = "encoder", "combined"
"""`combined` is computed from the encoder's runs, so the seeds of the two are paired."""
System = tuple[Sequence[NDArray[np.float64]], bool]
"""Row statistics [N, K] of each seed of an arm or a baseline on one split, and whether it is
deterministic, so that one run suffices."""


@dataclass(frozen=True, slots=True)
class Comparisons:
    """Scores of all arms and baselines on one test split."""

    measured: dict[str, verdicts.Measured]

    def interval(self, name: str, metric: str) -> tuple[float, float] | None:
        """Return the 95 % confidence interval of a system's mean score; None if its noise is
        unknown."""
        found, (worst, best) = verdicts.compared(self.measured[name]).interval, score_range(metric)
        return found and (max(found[0], worst), min(found[1], best))

    def against(self, name: str, first: str = ENCODER) -> verdicts.Difference:
        """Compare two systems: the score of `first` minus that of `name`."""
        same_seeds = {name, first} == {ENCODER, COMBINED}
        return verdicts.compared(self.measured[first], self.measured[name], same_seeds=same_seeds)

    def pairs(self) -> dict[tuple[str, str], verdicts.Difference]:
        """Compare every two encoders; the verdicts are adjusted to the number of pairs."""
        pairs = [*itertools.combinations([name for name in self.measured if name.startswith(ENCODER)], 2)]
        return dict(zip(pairs, verdicts.adjusted([self.against(name, first) for first, name in pairs]), strict=True))

    def with_encoder(self) -> dict[str, dict[str, Any]]:
        """Return the comparisons of the encoder with all other systems, as plain data."""
        pairs, others = self.pairs(), [name for name in self.measured if name != ENCODER]
        return {name: pairs.get((ENCODER, name), self.against(name)).to_json() for name in others}


def comparisons_by_split(
    plan: PlannedSweep, winners: Mapping[Arm, Sequence[Repetition]], baselines: Sequence[ScoredBaseline]
) -> dict[SplitName, Comparisons]:
    """Measure the winners of all arms and the baselines on every test split."""
    splits = test_splits(plan.job)
    return {split: Comparisons(_measured(plan, split, _systems(plan, split, winners, baselines))) for split in splits}


def on_dev(plan: PlannedSweep, outcomes: Outcomes, winner: str) -> verdicts.Measured:
    """Return the winner's scores on dev, by which versions of a model are compared later."""
    systems = _systems(plan, "dev", {ENCODER: outcomes.winners[ENCODER]}, outcomes.baselines)
    return _measured(plan, "dev", {winner: systems[winner]})[winner]


def _systems(
    plan: PlannedSweep,
    split: SplitName,
    winners: Mapping[Arm, Sequence[Repetition]],
    baselines: Sequence[ScoredBaseline],
) -> dict[str, System]:
    systems: dict[str, System] = {
        arm: ([one.array(plan.job, STATISTICS, split) for one in seeds], not is_random(plan, arm, seeds[0].params))
        for arm, seeds in winners.items()
    }
    return systems | {one.name: ([one.statistics[split]], True) for one in baselines}


def _measured(plan: PlannedSweep, split: SplitName, systems: Mapping[str, System]) -> dict[str, verdicts.Measured]:
    # Row statistics have the same meaning in every arm (only the encoding differs), so one task
    # kind scores them all.
    kind = kind_of(plan.job, plan.starts["encoder"])
    sources = rows_of(plan.job, kind, split).sources()
    return {
        name: verdicts.measured(of_seeds, sources, kind.score, repeatable=repeatable, rows_name=f"{split} rows")
        for name, (of_seeds, repeatable) in systems.items()
    }


def encoders_part(result: Mapping[str, Any], pairs: Mapping[tuple[str, str], verdicts.Difference]) -> dict[str, Any]:
    """Return the `encoders` part of result.json, which is empty for one encoder: the comparison on
    test of every two (`pairs`, `first` minus `second`), `tables` of the encoders and of the pairs,
    and a `sentence` on the exported one.
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
        better = {"better": titles[first], "worse": titles[second], "not shown": "none shown"}
        shown = verdicts.outcome(found.to_json(), better) if found.verdict else "not known"
        outcomes.append([titles[first], titles[second], signed(found.difference), *noise, shown])
        equals += [titles[second]] if first == ENCODER and found.verdict in ("not shown", None) else []
    best, metric = max(arms, key=lambda name: arms[name]["dev_mean"]), metric_name(result["metric"])
    is_kept = result.get("winner", {"name": ENCODER})["name"] != ENCODER  # beside the baseline that is exported
    done = "kept" if is_kept else "exported"
    exported = f"and is {done}" if best == ENCODER else f"and {titles[ENCODER]} is {done}"
    said = f"Of {len(arms)} encoders, {titles[best]} has the best mean on dev {exported}. "
    told = f"cannot be told from {', '.join(equals)}" if equals else "can be told from each of the others"
    said += f"On test, what is {done} {told}."
    heads = ["encoder", "parameters", f"dev {metric}", f"test {metric}", "ms per row"]
    heads_of_pairs = ["encoder", "minus", f"test {metric}", "95 % interval", "p (Holm)", "better"]
    of_pairs = [{"first": first, "second": second, **found.to_json()} for (first, second), found in pairs.items()]
    return {"pairs": of_pairs, "tables": [[heads, rows], [heads_of_pairs, outcomes]], "sentence": said}


def noise_of_difference(first: verdicts.Measured, second: verdicts.Measured) -> float:
    """Return the standard error of a difference; 0 if it is unknown, or both are right on the same
    rows."""
    low, high = verdicts.compared(first, second).interval or (0, 0)
    return 0.0 if np.allclose(first.blocks, second.blocks) else (high - low) / 4


def winner_part(result: Mapping[str, Any], saved: str | None, noise: float) -> dict[str, Any]:
    """Return the `winner` part of result.json: the `name` of what is exported, the encoder or the
    baseline that is `saved` if it does better on dev, and a `sentence` if that or a method that no
    folder holds does.

    The baseline must be ahead by more than `noise`, the standard error of the difference: of many
    settings of simple methods one is often as good by chance. Without noise, as where both are
    right on the same rows, the cheaper of equals is taken.
    """
    encoder, baselines, metric = result["arms"][ENCODER], result["baselines"], metric_name(result["metric"])
    where = "on the folds" if result["folds"] else "on dev"
    systems = {**baselines, **{name: arm for name, arm in result["arms"].items() if name in (ENCODER, COMBINED)}}
    # Rounded, because means of equals can differ.
    dev = {name: round(one["dev_mean"] if "seeds" in one else one["dev"], 9) for name, one in systems.items()}
    name, sentences = ENCODER, []
    is_noise = bool(noise) and saved is not None and 0 <= dev[saved] - dev[ENCODER] <= noise
    if is_noise:
        title, scores = baselines[saved]["title"], f"{metric} {dev[saved]:.3f} against {dev[ENCODER]:.3f}"
        sentences.append(f"Exported: the encoder; {title} is no better {where} beyond the noise ({scores}).")
    elif saved is not None and dev[saved] >= dev[ENCODER]:
        name, title = saved, baselines[saved]["title"]
        better = f"does better {where} than the encoder ({metric} {dev[name]:.3f} against {dev[ENCODER]:.3f}) and is"
        if dev[name] == dev[ENCODER]:
            better = f"ties with the encoder {where} ({metric} {dev[name]:.3f}), is the cheaper of the two and"
        own, its = (1000 / max(one["ms_per_row"], 1e-6) for one in (baselines[name], encoder))
        rates = f"({own:,.0f} rows a second against {its:,.0f})"
        times = f"{own / its:,.{0 if own > 10 * its else 1}f} times as fast {rates}"
        sentences.append(f"Exported: {title}, which {better} {times}; the encoder is in {result['task']}-{ENCODER}.")
    best = max(dev, key=lambda other: (dev[other] == dev[other], dev[other]))  # NaN ranks last
    if dev[best] > dev[name] and best != saved:
        score = f"{metric} {dev[best]:.3f} {where} against {dev[name]:.3f}"
        sentences.append(f"Not exported, because no folder holds it: {systems[best]['title']}, with {score}.")
    return {"name": name, "sentence": " ".join(sentences)}


def strongest_opponent(baselines: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the name of the baseline with the best dev score, the first of equals.

    >>> strongest_opponent({"majority": {"dev": 0.1}, "bm25": {"dev": 0.4}})
    'bm25'
    """
    dev = {name: float(one["dev"]) for name, one in baselines.items()}
    return max(dev, key=lambda name: (dev[name] == dev[name], dev[name]), default=None)  # NaN ranks last


def conclusion(result: Mapping[str, Any], comparisons: Comparisons) -> dict[str, Any]:
    """Return the `conclusion` part of result.json: `opponent` (a name, or None), its `title`, how
    `encoder` and, if it was run, `combined` compare with it, and the `sentence` of the report, the
    model card and the terminal."""
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


def _sentence(result: Mapping[str, Any], name: str, found: Mapping[str, verdicts.Difference]) -> str:
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

    >>> _left_out({"num_diverged": 1, "seeds": [{}, {}]}), _left_out({"num_diverged": 0, "seeds": [{}]})
    (' 1 of its 3 seeds diverged and is left out of this.', '')
    """
    number = encoder["num_diverged"]
    of_all = f"{number} of its {number + len(encoder['seeds'])} seeds"
    return f" {of_all} diverged and {'is' if number == 1 else 'are'} left out of this." if number else ""


def _clause(who: str, score: str, found: verdicts.Difference) -> str:
    if found.interval is None or found.smallest_visible is None:
        return f"{who} has {score}, and {verdicts.NOISE_UNKNOWN}"
    details = f"difference {signed(found.difference)}"
    if found.verdict == "not shown":  # the report has the interval, which is often too wide to be of use
        seen = f"it would have been seen from {found.smallest_visible:.3f} on"
        return f"{who} has {score}; {found.cause} ({details}; {seen})"
    interval = " to ".join(map(signed, found.interval))
    return f"{who} {'wins' if found.verdict == 'better' else 'loses'}: {score} ({details}, 95 % interval {interval})"


def _mean(result: Mapping[str, Any], system: str) -> str:
    arm = result["arms"][system]
    return with_spread(arm["test_mean"], arm["test_std"])


NUM_CONFIDENT_ERRORS = 20
"""Number of confident errors, and of labels that look wrong, in result.json; `predictions.parquet`
and `doubtful_labels.json` have all."""
_LONGEST_TEXT, _LONGEST_LIST = 2000, 20
# Columns of `TaskKind.table` that are not the row's inputs.
_VERDICT = ("id", "gold", "predicted", "score", "correct")


def spread_over_seeds(scores: Sequence[float]) -> float | None:
    """Return the sample standard deviation (n - 1); None for a single score, whose spread is
    unknown."""
    return round(statistics.stdev(scores), 12) if len(scores) > 1 else None


def means_over_seeds(scores: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float | None]]:
    """Return the mean of each score over seeds and its spread, which is None for a single seed."""
    by_name = {name: [of_seed[name] for of_seed in scores] for name in scores[0]}
    return {
        name: {"mean": statistics.fmean(values), "std": spread_over_seeds(values)} for name, values in by_name.items()
    }


def confident_errors(predictions: pa.Table, most: int, *, right_from: float) -> list[dict[str, Any]]:
    """Return the wrong predictions that the model was most confident of, first the surest; long
    texts are cut."""
    graded = predictions.select(["score", "correct"]).to_pylist()
    wrong = [place for place, row in enumerate(graded) if float(row["correct"]) < right_from]
    wrong.sort(key=lambda place: (-(graded[place]["score"] or 0.0), float(graded[place]["correct"]), place))
    inputs = [name for name in predictions.column_names if name not in _VERDICT and not name.startswith("probability_")]
    rows = predictions.select(["id", *inputs, "gold", "predicted", "score"]).take(pa.array(wrong[:most], pa.int64()))
    return [{name: _shortened(value) for name, value in row.items()} for row in rows.to_pylist()]


def _shortened(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return value[:_LONGEST_TEXT] + " …"
    return [_shortened(item) for item in value[:_LONGEST_LIST]] if isinstance(value, list) else value


_KIND = "sweep"
_FORMAT_VERSION = 4
STANDING = "standing.json"
"""File of the winner's dev scores by seed and block of rows, with which later versions are
compared."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """All outcomes of a sweep."""

    trials: Mapping[Arm, Sequence[FrozenTrial]]
    candidates: Sequence[Repetition]
    """Runs of the best configurations over seeds."""
    winners: Mapping[Arm, Sequence[Repetition]]
    others: Sequence[Repetition]
    """Runs of the winners at other training sizes."""
    baselines: Sequence[ScoredBaseline]


def write_sweep_result(plan: PlannedSweep, outcomes: Outcomes, *, workers_matter: bool, note: str) -> dict[str, Any]:
    """Write `result/` and return the content of result.json."""
    job = plan.job
    labels = read_task_manifest(job.task_folder)["labels"]
    best = best_seed(plan, outcomes.winners["encoder"])
    comparisons = comparisons_by_split(plan, outcomes.winners, outcomes.baselines)
    predictions = pq.read_table(best.folder(job) / TEST / PREDICTIONS)
    errors = confident_errors(predictions, NUM_CONFIDENT_ERRORS, right_from=task_kind(job.task, labels).right_from)
    rows = split_sizes(job)
    reading = best.reading(job)
    doubtful = read_json(job.run_folder / "baselines" / DOUBTFUL)
    titles = {ENCODER: "the encoder", **{one.name: one.title for one in outcomes.baselines}}
    result = {
        "format_version": _FORMAT_VERSION,
        "task": job.task_name,
        "task_kind": job.task.kind,
        "metric": job.task.metric,
        "labels": labels,
        "num_trials": sum(trial.state != TrialState.FAIL for trial in outcomes.trials["encoder"]),
        "num_seeds": len(outcomes.winners["encoder"]),
        "rows": rows,
        "folds": has_folds(job),
        "test_splits": test_splits(job),
        "start": plan.starts["encoder"].start,
        "arms": {arm: _arm(plan, arm, outcomes, comparisons) for arm in outcomes.winners},
        "baselines": {
            one.name: {
                "title": one.title,
                **{split: one.scores[split][job.task.metric] for split in ("dev", "test")},
                **_intervals(comparisons, one.name, job.task.metric),
                "scores": one.scores,
                "settings": one.settings,
                **({} if one.ms_per_row is None else {"ms_per_row": one.ms_per_row}),
            }
            for one in outcomes.baselines
        },
        "comparisons": comparisons["test"].with_encoder(),
        "comparisons_by_split": {split: of_split.with_encoder() for split, of_split in comparisons.items()},
        "comparison": comparisons["test"].with_encoder().get("random_weights"),
        "label_efficiency": (table := _label_efficiency(job, outcomes, rows["train"])),
        **({"label_curve": label_curve(table, titles, job.task.metric, rows["test"])} if job.sweep.label_curve else {}),
        **({"teacher": read_json(job.run_folder / TEACHER_SCORES)} if job.task.teacher is not None else {}),
        "best": {
            "seed": best.seed,
            "dev": reading["scores"]["dev"][job.task.metric],
            "test": reading["scores"]["test"][job.task.metric],
        },
        **({"confusion_matrix": matrix} if (matrix := reading["details"].get("confusion_matrix")) is not None else {}),
        **({"importances": shares} if (shares := importances(outcomes.trials["encoder"])) else {}),
        "details": reading["details"],
        "examples": {"confident_errors": errors},
        "doubtful_labels": {
            "number": len(doubtful),
            "rows": [{key: _shortened(value) for key, value in row.items()} for row in doubtful[:NUM_CONFIDENT_ERRORS]],
        },
        "data_hash": data_hash(job.task_folder),
        "workers_matter": workers_matter,
        "note": note,
    }
    saved = next((one.name for one in outcomes.baselines if one.ms_per_row is not None), None)
    result["winner"] = {"name": ENCODER, "sentence": ""}
    if job.sweep.exported == "winner":
        compared = [on_dev(plan, outcomes, name) for name in (ENCODER, saved) if name is not None]
        noise = noise_of_difference(*compared) if saved is not None else 0.0
        result["winner"] = winner_part(result, saved, noise)
    result["conclusion"] = conclusion(result, comparisons["test"])
    result["conclusion"]["sentence"] = f"{result['conclusion']['sentence']} {result['winner']['sentence']}".strip()
    statistics_of: dict[str, Callable[[SplitName], NDArray[np.float64]]]
    statistics_of = {one.name: one.statistics.__getitem__ for one in outcomes.baselines}
    statistics_of[ENCODER] = partial(best.array, job, STATISTICS)
    of_winner = statistics_of[result["winner"]["name"]]
    if (label_sets := label_sets_of(job, of_winner)) is not None:
        result["label_sets"] = label_sets.measured(of_winner("test"))
    result["encoders"] = encoders_part(result, comparisons["test"].pairs())
    with folder_written_atomically(job.run_folder / "result") as folder:
        write_json(folder / "result.json", result)
        write_json(folder / STANDING, on_dev(plan, outcomes, result["winner"]["name"]).to_json())
        write_json(folder / DOUBTFUL, doubtful)
        for split in test_splits(job):
            name = file_of(PREDICTIONS, split)
            shutil.copyfile(best.folder(job) / TEST / name, folder / name)
        start = plan.starts["encoder"]
        kind = kind_of(job, start)
        shutil.copytree(best.folder(job) / MODEL, folder / "best")  # a folder that `bertline.load` opens
        copy_tokenizer(start.folder, folder / "best", max_length=kind.config.max_length)
        label_sets = label_sets_of(job, statistics_of[ENCODER])
        write_task_file(folder / "best", kind, reading["calibration"], label_sets)
        if result["winner"]["name"] != ENCODER:
            shutil.copytree(job.run_folder / "baselines" / SAVED, folder / "winner")
        content = {
            **{key: result[key] for key in ("task", "task_kind", "metric", "labels")},
            "best_seed": best.seed,
            "workers_matter": workers_matter,
            "versions": versions_of("optuna", "scikit-learn", "tokenizers", "torch"),
        }
        write_manifest(folder, kind=_KIND, format_version=_FORMAT_VERSION, content=content)
    return result


def sweep_figures(result: dict[str, Any]) -> dict[str, float]:
    """Return the figures for artifacts/metrics: scores of the encoder, the other arms and the
    baselines, and verdicts.

    `importance/NAME`: see `importances`. `difference_from_strongest` is that from the strongest
    simple opponent, with the ends of its 95 % interval. `beats_...` is 1 (better), 0 (not shown) or
    -1 (worse).
    """
    metric, arms = result["metric"], result["arms"]
    figures: dict[str, float] = {"num_trials": result["num_trials"], f"dev/{metric}_mean": arms["encoder"]["dev_mean"]}
    for arm, scores in arms.items():
        prefix = "" if arm == ENCODER else f"{arm}/"
        for split in result["test_splits"]:
            found = scores["scores"][split][metric]
            figures[f"{prefix}{split}/{metric}_mean"] = found["mean"]
            if found["std"] is not None:
                figures[f"{prefix}{split}/{metric}_std"] = found["std"]
    for name, scores in result["baselines"].items():
        figures[f"{name}/test/{metric}"] = scores["test"]
    figures |= {f"importance/{name}": share for name, share in result.get("importances", {}).items()}
    pretraining = result["comparison"] or {}
    if "verdict" in pretraining:
        figures["beats_random_weights"] = verdicts.AS_NUMBER[pretraining["verdict"]]
    for system in (ENCODER, COMBINED):
        found = result["conclusion"].get(system, {})
        if "verdict" in found:
            low, high = found["interval"]
            figures |= {
                f"{system}/difference_from_strongest": found["difference"],
                f"{system}/difference_low": low,
                f"{system}/difference_high": high,
                f"{system}/smallest_visible_difference": found["smallest_visible"],
                f"{system}/beats_strongest": verdicts.AS_NUMBER[found["verdict"]],
            }
    return figures


def data_hash(task_folder: Path) -> str:
    """Return a SHA-256 digest of all rows of a task, which identifies results on the same data."""
    digest = hashlib.sha256()
    for path in sorted(task_folder.glob("*.parquet")):
        digest.update(f"{path.name}\0{sha256_of_file(path)}\n".encode())
    return digest.hexdigest()


def _arm(
    plan: PlannedSweep, arm: Arm, outcomes: Outcomes, comparisons: Mapping[SplitName, Comparisons]
) -> dict[str, Any]:
    job, metric, winners = plan.job, plan.job.task.metric, outcomes.winners[arm]
    readings = [seed.reading(job) for seed in winners]
    by_split = {split: [reading["scores"][split] for reading in readings] for split in ("dev", *test_splits(job))}
    scores = {split: means_over_seeds(of_split) for split, of_split in by_split.items()}
    candidates = []
    runs = [seed for seed in outcomes.candidates if seed.arm == winners[0].arm]
    num_diverged = sum(seed.diverged(job) for seed in runs if seed.candidate == winners[0].candidate)
    for _, of_candidate in itertools.groupby(runs, lambda seed: seed.candidate):
        repeated = list(of_candidate)
        of_dev = [seed.outcome(job)["dev"][metric] for seed in repeated if not seed.diverged(job)]
        mean = statistics.fmean(of_dev) if of_dev else None
        entry = {"params": repeated[0].params, "dev_mean": mean, "dev_std": spread_over_seeds(of_dev), "dev": of_dev}
        candidates.append({**entry, "num_diverged": len(repeated) - len(of_dev)})
    return {
        "title": "encoder and BM25 combined" if arm == "combined" else plan.starts[arm].title,
        "start": plan.start_of(arm).start,
        "trials": [
            {
                "number": trial.number,
                "state": trial.state.name,
                "params": trial.params,
                "dev": last_dev(trial),
                "curve": curve_of(trial),
                "time_s": trial.duration.total_seconds() if trial.duration is not None else None,
            }
            for trial in outcomes.trials.get(arm, ())
        ],
        "best_params": winners[0].params,
        "settings": winners[0].outcome(job).get("settings", {}),
        "candidates": candidates,
        "seeds": [
            {
                "seed": seed.seed,
                "dev": by_split["dev"][place][metric],
                "test": by_split["test"][place][metric],
                "scores": {split: by_split[split][place] for split in by_split},
                "degenerate": readings[place]["degenerate"],
                "time_s": seed.outcome(job)["time_s"],
            }
            for place, seed in enumerate(winners)
        ],
        **{f"{split}_{figure}": value for split in ("dev", "test") for figure, value in scores[split][metric].items()},
        **_intervals(comparisons, arm, metric),
        "scores": scores,
        "num_degenerate": num_diverged + sum(reading["degenerate"] for reading in readings),
        "num_diverged": num_diverged,
        "cut_rows": winners[0].cut_rows(job),
        **{key: readings[0].get(key) for key in ("num_parameters", "ms_per_row")},  # `combined` has none
    }


def _intervals(comparisons: Mapping[SplitName, Comparisons], system: str, metric: str) -> dict[str, Any]:
    by_split = {split: of_split.interval(system, metric) for split, of_split in comparisons.items()}
    return {"test_interval": by_split["test"], "intervals": by_split}


def _label_efficiency(job: SweepJob, outcomes: Outcomes, train_rows: int) -> list[dict[str, Any]]:
    """Return the test scores by training size; for the main size, those of the winners' runs."""
    metric = job.task.metric
    found: dict[tuple[int, str], list[float]] = {}
    if job.task.label_efficiency_rows or job.sweep.label_curve:
        for arm, seeds in outcomes.winners.items():
            if arm in (ENCODER, "random_weights"):
                found[train_rows, arm] = [seed.reading(job)["scores"]["test"][metric] for seed in seeds]
    names = {seeds[0].arm: arm for arm, seeds in outcomes.winners.items()}
    for repetition in outcomes.others:
        if repetition.diverged(job):
            continue
        scores = found.setdefault((repetition.num_train_rows or train_rows, names[repetition.arm]), [])
        scores.append(repetition.outcome(job)["test"][metric])
    for baseline in outcomes.baselines:
        found |= {(rows, baseline.name): scores for rows, scores in baseline.test_by_rows.items()}
    table = []
    for (rows, name), scores in sorted(found.items(), key=lambda item: item[0][0]):
        figures = {
            "test_mean": statistics.fmean(scores),
            "test_std": spread_over_seeds(scores),
            "num_seeds": len(scores),
        }
        table.append({"rows": rows, "arm": name, "test": scores, **figures})
    return table
