"""Second half of a sweep: train the best configurations over seeds, choose the winner on dev, then
score test.

The candidates are trained over seeds and compared on dev; their models are kept. Once the winner of
each arm is known, nothing else is chosen: only the winner's models are scored on test, once each. A
seed that diverges has no model and no score; it is counted and reported.
"""

import hashlib
import itertools
import json
import math
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import optuna
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bertline.finetuning.finetune import FineTuningResult, fine_tune
from bertline.finetuning.job import DevOutcome, DivergedError, FineTuningJob
from bertline.foundation.errors import ConfigError, MachineError
from bertline.foundation.files import folder_written_atomically, read_json, write_json
from bertline.foundation.formats import duration, short_title
from bertline.foundation.progress import say
from bertline.foundation.seeds import seed_for
from bertline.kinds.retrieval import Found, Retrieval
from bertline.modeling.attention import attention_device
from bertline.modeling.attention_choice import choose_attention
from bertline.sweep.bench import Arm, Bench, PlannedSweep, split_sizes, test_splits
from bertline.sweep.folds import calibration_split, has_folds, has_one_label
from bertline.sweep.job import SweepJob
from bertline.sweep.label_curve import curve_sizes, drawn
from bertline.sweep.space import Params, with_params
from bertline.sweep.studies import REASON, Slot, add_missing_events
from bertline.tasks.stored_rows import SplitName, read_task_manifest

OUTCOME, READING, STATISTICS, RANKING = "outcome.json", "reading.json", "statistics.npy", "ranking.npy"
MODEL, TEST, PREDICTIONS = "model", "test", "predictions.parquet"
TEACHER_SCORES = "teacher.json"
"""File of the teacher's own scores by split."""
_REPETITION = "repetition"
"""Attribute of a trial: the repetition, as JSON values."""
_MOST_ROWS = 5_000
"""Number of train rows above which only `full` is tried: the other methods are for few labels."""
_ORDER = ("frozen", "full", "contrastive")
METHODS = {"frozen": "frozen", "contrastive": "adapted by contrast", "full": "fine-tuned"}
"""What the encoder is by each method, in words."""
DOCUMENTS = "documents"
"""Key of a collection's documents in `cut_rows`, next to the splits."""


@dataclass(frozen=True, slots=True)
class Repetition:
    """One run of one of the best configurations."""

    arm: Arm
    params: Params
    kind: Literal["seed", "label_efficiency", "label_curve", "folds"]
    """`label_curve`: on a draw of the rows, which `seed` numbers. `folds`: models that each leave a
    fold out; its outcome on dev is that of all rows."""
    number: int
    """Number of the run, unique within its arm and kind."""
    candidate: int
    """Rank of the configuration among the best of its arm by their trials, from 0."""
    seed: int
    """Number of the seed, from 0 for each configuration and training size."""
    num_train_rows: int | None

    def folder(self, job: SweepJob) -> Path:
        """Return the folder of the outcome."""
        digest = hashlib.sha256(json.dumps(self.params, sort_keys=True).encode()).hexdigest()[:8]
        return job.run_folder / "seeds" / f"{self.arm}-{self.kind}-{self.number}-{digest}"

    def outcome(self, job: SweepJob) -> dict[str, Any]:
        """Return the outcome of training, in its precision: `dev` (all scores), by which candidates
        are compared, `curve`, `calibration`, `cut_rows`, `time_s`, and `test` for label efficiency.
        A run that `diverged` has only `time_s`."""
        return read_json(self.folder(job) / OUTCOME)

    def reading(self, job: SweepJob) -> dict[str, Any]:
        """Return the results of the model as served: `calibration`, `scores` by split,
        `degenerate`, `details`, `cut_rows`."""
        return read_json(self.folder(job) / TEST / READING)

    def diverged(self, job: SweepJob) -> bool:
        """Return whether training diverged, so that there is no model."""
        return bool(self.outcome(job)["diverged"])

    def cut_rows(self, job: SweepJob) -> dict[str, int]:
        """Return the number of truncated rows by split, and of truncated documents of a collection
        (`DOCUMENTS`)."""
        return {**self.outcome(job)["cut_rows"], **self.reading(job)["cut_rows"]}

    def dev_outcome(self, job: SweepJob) -> DevOutcome:
        """Return the outcome on dev of a run that kept the statistics of rows: of `seed` and
        `folds`."""
        outcome = self.outcome(job)
        statistics_of_rows = np.load(self.folder(job) / f"dev_{STATISTICS}", allow_pickle=False)
        return DevOutcome(outcome["dev"], outcome["calibration"], statistics_of_rows)

    def array(self, job: SweepJob, name: str, split: SplitName) -> NDArray[Any]:
        """Return a saved array of the model as served: `STATISTICS` of rows, [N, K], of dev or a
        test split; `RANKING`, [N, K], the documents found for each query, which only the arm
        `encoder` on retrieval has."""
        return np.load(self.folder(job) / TEST / file_of(name, split), allow_pickle=False)


def candidates_over_seeds(plan: PlannedSweep, candidates: dict[Arm, list[Params]]) -> list[Repetition]:
    """Plan the best configurations of each arm over `num_seeds` seeds (from random weights over at
    most `random_weights_seeds`), or one run if nothing is random."""
    job = plan.job
    planned: list[Repetition] = []
    for arm, points in candidates.items():
        most = (job.sweep.random_weights_seeds if arm == "random_weights" else None) or job.sweep.num_seeds
        for place, params in enumerate(points):
            num_seeds = min(job.sweep.num_seeds, most) if is_random(plan, arm, params) else 1
            planned += [
                Repetition(arm, params, "seed", place * num_seeds + seed, place, seed, job.task.num_train_rows)
                for seed in range(num_seeds)
            ]
    return planned


def possible_methods(plan: PlannedSweep) -> tuple[str, ...]:
    """Return the methods by which a task can be learned: others than `full` are for few rows with
    one label each, or with a number, by which contrast cannot pair them."""
    task = plan.job.task
    if task.teacher or split_sizes(plan.job)["train"] > _MOST_ROWS:
        return ("full",)
    has_number = getattr(task, "kind", "") == "regression" and getattr(task, "head", "") == "linear"
    return tuple(METHODS) if has_one_label(task) else ("frozen", "full") if has_number else ("full",)


def check_method(plan: PlannedSweep) -> None:
    """Check that a task can have the methods that are asked for instead of `full`, and that early
    stopping has a dev.

    Raises:
        ConfigError: One cannot be had.
    """
    job, method = plan.job, plan.fine_tuning.method
    if plan.fine_tuning.early_stopping_epochs is not None and has_folds(job):
        key, rows = job.sweep.deciding(job.task_name, job.task, "early_stopping_epochs"), split_sizes(job)["train"]
        raise ConfigError(
            f"{key} needs rows that no model learns from, and below {job.sweep.fold_rows} rows all are learned from "
            f"({job.task_name} has {rows} besides test). Give a dev file, set sweep.fold_rows to 0, or leave it out."
        )
    possible = possible_methods(plan)
    if method not in possible or not {*job.sweep.methods} & {*possible}:
        named = "sweep.methods is without full" if method == "full" else f"the method is {method} (quick=true)"
        raise ConfigError(
            f"{named}: others are for classification with one label a row, or (frozen alone) regression, without a "
            f"teacher, of at most {_MOST_ROWS:,} train rows; {job.task_name} is {job.task.kind} of "
            f"{split_sizes(job)['train']:,}."
        )


def methods_tried(plan: PlannedSweep, points: Mapping[Arm, list[Params]]) -> list[Repetition]:
    """Plan one run of each method for each encoder, of its best point for `full`; empty for `full`
    alone."""
    task, possible = plan.job.task, possible_methods(plan)
    methods = [method for method in plan.job.sweep.methods if method in possible]
    if methods == ["full"] or plan.fine_tuning.method != "full":
        return []
    kind: Any = "folds" if has_folds(plan.job) else "seed"
    return [
        Repetition(arm, points[arm][0] if method == "full" else {"method": method}, kind, 0, 0, 0, task.num_train_rows)
        for arm in points
        if arm.startswith("encoder")
        for method in methods
    ]


def with_best_methods(
    plan: PlannedSweep, points: Mapping[Arm, list[Params]], tried: Sequence[Repetition]
) -> tuple[dict[Arm, list[Params]], list[str]]:
    """Return the points of each arm, those of an encoder by its best method on dev, the first of
    equals, and a sentence for each choice.

    `full` has to be ahead by more than the standard error of a share of so many rows, on folds by
    two: it trains most, what it has more on a few rows is mostly chance, and its steps in a fold
    are a fraction of those that follow.
    """
    job, chosen, sentences = plan.job, dict(points), []
    for arm, of_arm in itertools.groupby(tried, lambda one: one.arm):
        scored = [(one, one.outcome(job)["dev"][job.task.metric]) for one in of_arm if not one.diverged(job)]
        if not scored:
            continue
        names = [f"{METHODS[str(one.params.get('method', 'full'))]} {score:.3f}" for one, score in scored]
        most, num_rows = max(score for _, score in scored), split_sizes(job)["dev"]
        share = min(max(most, 1 / num_rows), 1 - 1 / num_rows)  # also of a perfect score, and of negative losses
        noise = (2 if has_folds(job) else 1) * math.sqrt(share * (1 - share) / num_rows)
        best, score = max(scored, key=lambda pair: pair[1] - ("method" not in pair[0].params) * noise)
        if "method" in best.params:
            chosen[arm] = [best.params]
        title, where = short_title(plan.starts[arm].title), "out of fold" if has_folds(job) else "on dev"
        taken, why = names[scored.index((best, score))], ""
        if score < most:
            why = f", since fine-tuned is ahead by less than the noise of {num_rows} rows ({noise:.3f})"
        elif sum(each == score for _, each in scored) > 1:
            why = ", the cheapest of equals"
        sentences.append(f"{title} {where}: {', '.join(names)}; taken is {taken}{why}.")
    return chosen, sentences


def folds_needed(plan: PlannedSweep, candidates: Sequence[Repetition]) -> list[Repetition]:
    """Plan the folds of candidates, one run for the seeds of each; empty without folds."""
    of_candidates = [replace(one, kind="folds", number=0, candidate=0, seed=0) for one in candidates]
    return [one for place, one in enumerate(of_candidates) if has_folds(plan.job) and one not in of_candidates[:place]]


def label_efficiency(plan: PlannedSweep, chosen: dict[Arm, list[Repetition]]) -> list[Repetition]:
    """Plan the chosen configurations of the encoder and of random weights at the other training
    sizes, and that of the encoder for the label curve."""
    task, sweep = plan.job.task, plan.job.sweep
    available = read_task_manifest(plan.job.task_folder)["counts"]["train"]
    main = min(task.num_train_rows or available, available)
    sizes = sorted({min(rows, available) for rows in task.label_efficiency_rows} - {main})
    pairs = [(rows, seed) for rows in sizes for seed in range(sweep.num_label_efficiency_seeds)]
    planned = [
        Repetition(seeds[0].arm, seeds[0].params, "label_efficiency", number, 0, seed, rows)
        for arm, seeds in chosen.items()
        if arm in ("encoder", "random_weights") and with_params(plan.fine_tuning, seeds[0].params).num_epochs > 0
        for number, (rows, seed) in enumerate(pairs)
    ]
    sizes, best = curve_sizes(split_sizes(plan.job)["train"]) if sweep.label_curve else [], chosen["encoder"][0]
    for number, (rows, draw) in enumerate(itertools.product(sizes, range(sweep.num_label_efficiency_seeds))):
        planned.append(Repetition(best.arm, best.params, "label_curve", number, 0, draw, rows))
    return planned


def repetition_slots(plan: PlannedSweep, repetitions: Sequence[Repetition]) -> list[Slot]:
    """Plan the trials of `run_repetition`, named by the file of their outcome in the run folder."""

    def order(repetition: Repetition) -> tuple[int, int]:
        config = with_params(plan.fine_tuning, repetition.params)
        return _ORDER.index(config.method), -(repetition.num_train_rows or 1) * config.num_epochs

    # Frozen vectors take a moment. Then longest first, so that at the end no worker runs a long one
    # while others idle.
    ordered = sorted(repetitions, key=order)
    places = [(one.folder(plan.job) / OUTCOME).relative_to(plan.job.run_folder).as_posix() for one in ordered]
    return [Slot(place, attributes={_REPETITION: asdict(one)}) for place, one in zip(places, ordered, strict=True)]


def run_repetition(bench: Bench, trial: optuna.Trial) -> float:
    """Fine-tune the repetition of a trial, if it has no outcome; return its score on dev, NaN if it
    diverged."""
    repetition, job = Repetition(**trial.user_attrs[_REPETITION]), bench.job
    if not (repetition.folder(job) / OUTCOME).exists():
        message, left_s = _train(bench, repetition), (bench.plan.ends_s or 0.0) - time.time()
        say(f"{job.task_name}, {message}{f'; about {duration(left_s)} left' if left_s > 0 else ''}")
    outcome = repetition.outcome(job)
    if outcome["diverged"]:
        trial.set_user_attr(REASON, outcome["reason"])
        return math.nan
    return float(outcome["dev"][job.task.metric])


def winners(plan: PlannedSweep, repetitions: Sequence[Repetition]) -> dict[Arm, list[Repetition]]:
    """Choose the winning configuration of each arm, and return its finished repetitions.

    The winner has the fewest diverged seeds, then the best mean on dev over the finished ones;
    among equals, the first wins. An arm without a finished repetition has no winner.
    """
    job, metric = plan.job, plan.job.task.metric
    chosen: dict[Arm, list[Repetition]] = {}
    for arm in plan.starts:
        seeds = [repetition for repetition in repetitions if repetition.arm == arm]
        ranked: dict[tuple[int, float, int], list[Repetition]] = {}
        for candidate, group in itertools.groupby(seeds, lambda seed: seed.candidate):
            of_candidate = list(group)
            finished = [seed for seed in of_candidate if not seed.diverged(job)]
            if finished:
                mean = statistics.fmean(seed.outcome(job)["dev"][metric] for seed in finished)
                ranked[len(finished) - len(of_candidate), mean, -candidate] = finished
        if ranked:
            chosen[arm] = ranked[max(ranked)]
    if "encoder" not in chosen:
        raise MachineError(
            f"{job.task_name}: each of the best configurations of the encoder diverged with every seed (its loss is "
            f"not finite). Lower {job.sweep.deciding(job.task_name, job.task, 'learning_rate')}."
        )
    return chosen


def chosen_encoder(job: SweepJob, chosen: dict[Arm, list[Repetition]]) -> Arm:
    """Return the arm of the encoder that is exported; of equals on dev, the first."""
    arms = ["encoder"] if job.sweep.exported == "own" else [arm for arm in chosen if arm.startswith("encoder")]
    dev = {arm: [seed.outcome(job)["dev"][job.task.metric] for seed in chosen[arm]] for arm in arms}
    return max(arms, key=lambda arm: statistics.fmean(dev[arm]))


def best_seed(plan: PlannedSweep, seeds: Sequence[Repetition]) -> Repetition:
    """Return the repetition with the best score on dev; among equals, the first."""
    return max(seeds, key=lambda seed: (seed.outcome(plan.job)["dev"][plan.job.task.metric], -seed.seed))


def read_tests(bench: Bench, chosen: dict[Arm, list[Repetition]]) -> None:
    """Score the winners' models on the test splits, once each, and delete all models but the
    encoder's best."""
    job, best = bench.job, best_seed(bench.plan, chosen["encoder"])
    for repetition in (repetition for seeds in chosen.values() for repetition in seeds):
        if not (repetition.folder(job) / TEST / READING).exists():
            say(f"{job.task_name}, {_read_test(bench, repetition, best)}")
    if (teacher := bench.arm("encoder").teacher) is not None and not (job.run_folder / TEACHER_SCORES).exists():
        splits = {name: bench.arm("encoder").split(name) for name in ("dev", *test_splits(job))}
        scores = {name: teacher.scores(one.rows, one.encoded, bench.machine) for name, one in splits.items()}
        write_json(job.run_folder / TEACHER_SCORES, scores)
    for model in (job.run_folder / "seeds").glob(f"*/{MODEL}"):
        if model.parent != best.folder(job):
            shutil.rmtree(model)


def write_repetition_events(job: SweepJob, repetitions: Sequence[Repetition]) -> None:
    """Append the repetitions that have ended to events.jsonl."""
    ended = [each for each in repetitions if (each.folder(job) / OUTCOME).exists()]
    add_missing_events(job.run_folder, [_event(job, each, each.outcome(job)) for each in ended])


def is_random(plan: PlannedSweep, arm: Arm, params: Params) -> bool:
    """Return whether seeds can differ; they cannot if a pretrained encoder is scored without
    training."""
    config = with_params(plan.fine_tuning, params)
    return plan.start_of(arm).weights == "random" or (config.num_epochs > 0 and config.method != "frozen")


def _train(bench: Bench, repetition: Repetition) -> str:
    """Fine-tune a repetition, of `folds` a model for each, write its outcome, and return the
    progress message."""
    started = time.monotonic()
    job, arm = bench.job, bench.arm(repetition.arm)
    place = repetition.folder(job)
    saved = job.checkpoints / place.name
    name = _name(bench, repetition)
    title = f"{job.task_name}, {name}"
    seed = seed_for(job.sweep.seed, "repetition", repetition.seed)
    result: FineTuningResult | None = None
    try:
        if repetition.kind == "folds":
            dev = bench.out_of_fold(repetition.arm, repetition.params, seed=seed, title=title)
        else:
            result = fine_tune(replace(_run_of(bench, repetition, seed), checkpoints=saved, title=title))
            dev = result.dev
    except DivergedError as error:
        with folder_written_atomically(place) as folder:
            write_json(folder / OUTCOME, {"diverged": True, "reason": str(error), "time_s": time.monotonic() - started})
        shutil.rmtree(saved, ignore_errors=True)
        return f"{name}: {error}"
    if (place / OUTCOME).exists():
        return f"{name}: came too late, and was done elsewhere"  # this machine was silent; test may have been read
    outcome: dict[str, Any] = {"diverged": False, "curve": [], "cut_rows": {}}
    if result is not None:
        outcome["curve"] = [[check.share, check.scores[job.task.metric]] for check in result.checks if check.scores]
        outcome["cut_rows"] = {"train": arm.num_cut("train", repetition.num_train_rows), "dev": arm.num_cut("dev")}
        if has_folds(job):
            dev = replace(repetition, kind="folds", number=0, candidate=0, seed=0).dev_outcome(job)
    outcome |= {"dev": dev.scores, "calibration": dev.calibration}
    shown = f"{dev.scores[job.task.metric]:.3f} on {'the folds' if has_folds(job) else 'dev'}"
    with folder_written_atomically(place) as folder:
        if repetition.kind in ("seed", "folds"):
            np.save(folder / f"dev_{STATISTICS}", dev.statistics)
        if result is not None and repetition.kind == "seed":
            (folder / MODEL).mkdir()
            arm.kind.save_model(result.model, folder / MODEL)
        elif result is not None:
            test = arm.split("test")
            predictions = arm.kind.predict(result.model, test.encoded, bench.machine)
            outcome["test"] = arm.kind.scores(arm.kind.statistics(test.rows, predictions, dev.calibration))
            shown = f"{outcome['test'][job.task.metric]:.3f} on test"
        outcome["time_s"] = time.monotonic() - started
        write_json(folder / OUTCOME, outcome)
    shutil.rmtree(saved, ignore_errors=True)
    return f"{name}: {shown} in {outcome['time_s']:.0f} s"


def _name(bench: Bench, repetition: Repetition) -> str:
    sweep = bench.job.sweep
    parts = [repetition.arm]
    if len(sweep.methods) > 1:
        parts.append(METHODS[str(repetition.params.get("method", bench.plan.fine_tuning.method))])
    if repetition.kind.startswith("label_"):
        parts.append(f"{repetition.num_train_rows} rows")
    if repetition.kind != "folds":
        parts += [f"configuration {repetition.candidate + 1}"] if sweep.num_best > 1 else []
        parts.append(f"seed {repetition.seed}")
    return ", ".join(parts)


def _run_of(bench: Bench, repetition: Repetition, seed: int) -> FineTuningJob:
    """Return the fine-tuning of a repetition; that for the label curve learns from a draw of the
    rows."""
    num_rows = repetition.num_train_rows
    if repetition.kind != "label_curve" or num_rows is None:
        return bench.run(repetition.arm, repetition.params, num_train_rows=num_rows, seed=seed)
    job = bench.job
    run = bench.run(repetition.arm, repetition.params, num_train_rows=job.task.num_train_rows, seed=seed)
    places = drawn(run.train.rows, num_rows, job.sweep.seed, repetition.seed)
    return replace(run, train=bench.arm(repetition.arm).encoded(run.train.rows.take(places)))


def _read_test(bench: Bench, repetition: Repetition, best: Repetition) -> str:
    """Score a saved model on test, write its predictions if it is the best, and return the progress
    message."""
    job, arm = bench.job, bench.arm(repetition.arm)
    longest = int(arm.kind.lengths(arm.split("test").encoded).max(initial=1))
    device = attention_device(bench.machine.device, bench.machine.precision)
    attention = choose_attention(bench.runtime.attention, device, longest)
    model = arm.kind.load_model(repetition.folder(job) / MODEL, attention=attention.kind).to(bench.machine.device)
    # In fp32, as a loaded model computes, so that the reported scores are those of the model as
    # served.
    exact = replace(bench.machine, precision="fp32")
    dev, is_search = arm.split("dev"), isinstance(arm.kind, Retrieval) and repetition.arm == best.arm
    of_training = repetition.dev_outcome(job)
    calibration, dev_statistics = of_training.calibration, of_training.statistics
    is_chosen_on_dev = bool(calibration) and not has_folds(job)
    of_dev = arm.kind.predict(model, dev.encoded, exact) if is_chosen_on_dev or is_search else None
    if is_chosen_on_dev:
        calibration = arm.kind.calibrate(dev.rows, of_dev)
        dev_statistics = arm.kind.statistics(dev.rows, of_dev, calibration)
    scores: dict[SplitName, dict[str, float]] = {"dev": arm.kind.scores(dev_statistics)}
    reading: dict[str, Any] = {"calibration": calibration, "scores": scores, "cut_rows": {}}
    reading["num_parameters"] = sum(parameter.numel() for parameter in model.parameters())
    with folder_written_atomically(repetition.folder(job) / TEST) as folder:
        np.save(folder / file_of(STATISTICS, "dev"), dev_statistics)
        if (aside := calibration_split(job)) != "dev":
            split = arm.split(aside)
            of_aside = arm.kind.predict(model, split.encoded, exact)
            np.save(folder / file_of(STATISTICS, aside), arm.kind.statistics(split.rows, of_aside, calibration))
        if isinstance(of_dev, Found):
            np.save(folder / file_of(RANKING, "dev"), of_dev.documents)
        for name in test_splits(job):
            split = arm.split(name)
            started = time.monotonic()
            predictions = arm.kind.predict(model, split.encoded, exact)
            reading.setdefault("ms_per_row", 1000 * (time.monotonic() - started) / len(split.rows))  # of `test`
            if is_search:
                np.save(folder / file_of(RANKING, name), predictions.documents)
            statistics_of_rows = arm.kind.statistics(split.rows, predictions, calibration)
            scores[name] = arm.kind.scores(statistics_of_rows)
            reading["cut_rows"][name] = arm.num_cut(name)
            np.save(folder / file_of(STATISTICS, name), statistics_of_rows)
            if name == "test":
                if (documents := arm.kind.num_cut_documents(split.encoded)) is not None:
                    reading["cut_rows"][DOCUMENTS] = documents
                reading["degenerate"] = arm.kind.is_degenerate(split.rows, predictions, calibration)
                reading["details"] = arm.kind.details(split.rows, predictions, calibration)
            if repetition == best:
                table = arm.kind.table(split.rows, predictions, calibration)
                pq.write_table(table, folder / file_of(PREDICTIONS, name))
        write_json(folder / READING, reading)
    return f"{repetition.arm}, seed {repetition.seed}: {scores['test'][job.task.metric]:.3f} on test"


def file_of(name: str, split: SplitName) -> str:
    """Return the name of a file of a test split.

    >>> file_of("predictions.parquet", "test"), file_of("statistics.npy", "test_other")
    ('predictions.parquet', 'statistics_test_other.npy')
    """
    stem, _, suffix = name.partition(".")
    return name if split == "test" else f"{stem}_{split}.{suffix}"


def _event(job: SweepJob, repetition: Repetition, outcome: dict[str, Any]) -> dict[str, Any]:
    by_split: dict[str, dict[str, float]] = {split: outcome[split] for split in ("dev", "test") if split in outcome}
    if (repetition.folder(job) / TEST / READING).exists():
        by_split |= repetition.reading(job)["scores"]
    return {
        "arm": repetition.arm,
        "kind": repetition.kind,
        "number": repetition.number,
        "state": "FAIL" if outcome["diverged"] else "COMPLETE",
        "reason": outcome.get("reason"),
        "params": {**repetition.params, "seed": repetition.seed, "num_train_rows": repetition.num_train_rows},
        "metrics": {f"{split}/{name}": value for split, scores in by_split.items() for name, value in scores.items()},
        "curve": outcome.get("curve", []),
        "time_s": outcome["time_s"],
    }
