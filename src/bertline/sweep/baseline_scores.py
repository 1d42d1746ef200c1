"""Scores of a task's baselines, computed once per sweep on the splits that the encoder is scored on."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertline.baselines.base import Baseline, BaselineInputs
from bertline.baselines.frozen_encoder import FrozenEncoder
from bertline.demo.config import DocsSourceConfig
from bertline.finetuning.task_file import write_task_file
from bertline.foundation.files import folder_written_atomically, read_json, write_json
from bertline.foundation.progress import say
from bertline.kinds.base import TaskKind
from bertline.kinds.label_sets import LabelSets
from bertline.linear.model import load_linear
from bertline.sweep.bench import Bench, EncoderStart, PlannedSweep, kind_of, test_splits
from bertline.sweep.doubtful_labels import doubtful_labels
from bertline.sweep.folds import calibration_split, folds_of, has_folds, has_one_label, rows_of
from bertline.sweep.job import SweepJob
from bertline.sweep.label_curve import curve_sizes, drawn
from bertline.tasks.stored_rows import SplitName

_SCORES, DOUBTFUL = "scores.json", "doubtful_labels.json"
SAVED = "saved"
"""Folder of the best on dev of the baselines that can be saved, as `bertline.load` opens it."""


@dataclass(frozen=True, slots=True)
class ScoredBaseline:
    """A baseline and its scores."""

    name: str
    title: str
    scores: dict[str, dict[str, float]]
    """By split and metric."""
    settings: Mapping[str, float | str]
    statistics: dict[SplitName, NDArray[np.float64]]
    """Row statistics [N, K] of dev, each test split and, if there is one, the half of dev that was set aside."""
    test_by_rows: dict[int, list[float]]
    """Test scores by number of train rows, for `label_efficiency_rows` and `label_curve`."""
    ms_per_row: float | None = None
    """Milliseconds for a row of test, of the one in the folder `SAVED`; None for the others."""


def scored_baselines(plan: PlannedSweep) -> list[ScoredBaseline]:
    """Read the scores of the baselines."""
    folder = plan.job.run_folder / "baselines"
    splits = dict.fromkeys(["dev", calibration_split(plan.job), *test_splits(plan.job)])  # in one order in each process
    return [
        ScoredBaseline(
            **{**entry, "test_by_rows": {int(rows): scores for rows, scores in entry["test_by_rows"].items()}},
            statistics={
                split: np.load(folder / _statistics_file(entry["name"], split), allow_pickle=False) for split in splits
            },
        )
        for entry in read_json(folder / _SCORES)
    ]


def score_baselines(bench: Bench, start: EncoderStart) -> None:
    """Fit and score the baselines, if that has not been done; some have the vocabulary or the vectors of an encoder."""
    started, job, target = time.monotonic(), bench.job, bench.job.run_folder / "baselines"
    if (target / _SCORES).exists():
        return
    kind, encoder = kind_of(job, start), None
    if start.weights == "pretrained":
        machine = replace(bench.machine, precision="fp32")
        encoder = FrozenEncoder(start.folder, machine, max_length=kind.config.max_length)

    def made(train: Any, tests: Mapping[SplitName, Any]) -> list[Baseline]:
        return kind.baselines(
            BaselineInputs(kind=kind, train=train, dev=dev, tests=tests, folds=folds, encoder=encoder)
        )

    def scored(baseline: Baseline, predictions: Any, rows: Any) -> tuple[NDArray[np.float64], dict[str, float]]:
        """Return row statistics and scores, calibrated on dev as for the encoder."""
        calibration = kind.calibrate(dev, baseline.predictions["dev"])
        statistics = kind.statistics(rows, predictions, calibration)
        return statistics, kind.scores(statistics)

    read = {name: rows_of(job, kind, name) for name in ("train", "dev", calibration_split(job), *test_splits(job))}
    all_train, dev = read.pop("train"), read.pop("dev")
    train = all_train.first(job.task.num_train_rows)
    folds = folds_of(train, job.sweep.seed) if has_folds(job) else []
    baselines = made(train, read)
    by_rows: dict[str, dict[int, list[float]]] = {baseline.name: {} for baseline in baselines}
    sizes = {min(rows, len(all_train)) for rows in job.task.label_efficiency_rows}
    for rows in sorted(sizes | {len(train)}) if sizes else []:
        fewer = baselines if rows == len(train) else made(all_train.first(rows), {"test": read["test"]})
        for baseline in fewer:
            _, scores = scored(baseline, baseline.predictions["test"], read["test"])
            by_rows[baseline.name][rows] = [scores[job.task.metric]]
    with folder_written_atomically(target) as folder:
        content: list[dict[str, Any]] = []
        for baseline in baselines:
            by_split: dict[str, dict[str, float]] = {}
            for split, rows in {"dev": dev, **read}.items():
                statistics, by_split[split] = scored(baseline, baseline.predictions[split], rows)
                np.save(folder / _statistics_file(baseline.name, split), statistics)
            entry = {"name": baseline.name, "title": baseline.title, "settings": baseline.settings}
            content.append({**entry, "scores": by_split, "test_by_rows": by_rows[baseline.name]})
        can_be_saved = [place for place, baseline in enumerate(baselines) if baseline.save is not None]
        if can_be_saved:
            dev_scores = [entry["scores"]["dev"][job.task.metric] for entry in content]
            best = max(can_be_saved, key=lambda place: dev_scores[place])  # of equals the first, which is cheaper
            if job.sweep.exported == "winner":
                sets = label_sets_of(job, lambda split: np.load(folder / _statistics_file(baselines[best].name, split)))
                content[best]["ms_per_row"] = _saved(kind, baselines[best], dev, read["test"], folder / SAVED, sets)
            if job.sweep.label_curve and (refitted := baselines[best].refitted) is not None:
                by_size, test = content[best]["test_by_rows"], read["test"]
                by_size.setdefault(len(train), [content[best]["scores"]["test"][job.task.metric]])
                for size, draw in product(curve_sizes(len(train)), range(job.sweep.num_label_efficiency_seeds)):
                    predictions = refitted(drawn(train, size, job.sweep.seed, draw))(test)
                    _, scores = scored(baselines[best], predictions, test)
                    by_size.setdefault(size, []).append(scores[job.task.metric])
        checked = has_one_label(job.task) and not isinstance(job.task.source, DocsSourceConfig)  # people gave it
        write_json(folder / DOUBTFUL, doubtful_labels(train, kind.labels, encoder) if checked else [])
        write_json(folder / _SCORES, content)
    shown = ", ".join(f"{entry['title']} {entry['scores']['dev'][job.task.metric]:.3f}" for entry in content)
    where = "the folds" if folds else "dev"
    say(f"{job.task_name}, baselines: {shown} on {where} in {time.monotonic() - started:.0f} s")


def label_sets_of(job: SweepJob, statistics: Callable[[SplitName], NDArray[np.float64]]) -> LabelSets | None:
    """Return the label sets of a system from its row statistics; None unless rows have one label each."""
    split = calibration_split(job)
    rows = "out of fold" if has_folds(job) else "dev" if split == "dev" else "half of dev"
    return LabelSets.of(statistics(split), rows) if has_one_label(job.task) else None


def _saved(
    kind: TaskKind[Any, Any, Any], baseline: Baseline, dev: Any, test: Any, folder: Path, label_sets: LabelSets | None
) -> float:
    """Save a baseline with its task, and return the milliseconds that the saved one takes for a row of test."""
    assert baseline.save is not None
    folder.mkdir()
    baseline.save(folder)
    write_task_file(folder, kind, kind.calibrate(dev, baseline.predictions["dev"]), label_sets)
    predictor, _ = load_linear(folder)
    predictor(test.first(1))  # the first call prepares the vocabulary
    started = time.monotonic()
    predictor(test)
    return 1000 * (time.monotonic() - started) / len(test)


def _statistics_file(baseline: str, split: SplitName) -> str:
    return f"{baseline}-{split}.npy"
