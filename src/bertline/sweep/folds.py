"""Few labelled rows: train and dev are one set, and each of its rows is predicted by models that
did not see it.

A dev of five or fifty rows chooses nothing, and rows kept for it are missed in training. Choices
are made on the predictions of five folds; the models that are scored on test learn from all rows.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold

from bertline.foundation.seeds import unit_interval
from bertline.kinds.base import TaskKind
from bertline.kinds.classification import ClassificationTaskConfig
from bertline.sweep.job import SweepJob
from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.stored_rows import SplitName, read_task_manifest

NUM_FOLDS = 5
CALIBRATION: SplitName = "calibration"
"""The half of dev that chooses nothing, and tells which labels are likely enough for a set
(`LabelSets`)."""
STEPS_IN_A_FOLD = 40
"""Number of optimizer steps of a model that predicts a fold: enough to tell methods apart."""


def has_folds(job: SweepJob) -> bool:
    """Return whether choices are made on folds: rows are few, and dev was cut from train."""
    task, counts = job.task, read_task_manifest(job.task_folder)["counts"]
    given = any(getattr(task.source, key, None) is not None for key in ("dev_file", "dev_split"))
    sizes = task.num_train_rows is not None or bool(task.label_efficiency_rows)
    is_few = counts["train"] + counts["dev"] < job.sweep.fold_rows
    return is_few and isinstance(task, ClassificationTaskConfig) and not (given or sizes or task.teacher)


def has_one_label(task: BaseTaskConfig) -> bool:
    """Return whether a task is classification with one label a row."""
    return isinstance(task, ClassificationTaskConfig) and not task.multi_label


def calibration_split(job: SweepJob) -> SplitName:
    """Return the split of the scores of `LabelSets`: `CALIBRATION`, or where half of dev is too
    little, `dev`."""
    half, fewest = read_task_manifest(job.task_folder)["counts"]["dev"] // 2, job.sweep.calibration_rows
    return CALIBRATION if has_one_label(job.task) and 0 < fewest <= half and not has_folds(job) else "dev"


def rows_of(job: SweepJob, kind: TaskKind[Any, Any, Any], split: SplitName) -> Any:
    """Return the rows of a split; with folds, `train` and `dev` are both of all their rows, and
    where half of dev is set aside, `dev` is the other half."""
    if split in ("train", "dev") and has_folds(job):
        return kind.read(job.task_folder, "train").joined(kind.read(job.task_folder, "dev"))
    if split not in ("dev", CALIBRATION) or calibration_split(job) == "dev":
        return kind.read(job.task_folder, split)
    rows = kind.read(job.task_folder, "dev")
    shuffled = sorted(range(len(rows)), key=[unit_interval("calibration", one) for one in rows.sources()].__getitem__)
    half = len(rows) // 2
    return rows.take(sorted(shuffled[:half] if split == CALIBRATION else shuffled[half:]))


def folds_of(rows: Any, seed: int) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return the indices of the rows that each fold trains on, and of those it predicts.

    Each label has about the same share in every fold, and the rows of a source are in one.
    """
    labels = rows.labels if rows.labels.ndim == 1 else rows.labels.argmax(axis=1)
    sources = rows.sources()
    num_folds = min(NUM_FOLDS, len(set(sources)))
    is_stratified = np.bincount(labels).max() >= num_folds
    splitter = StratifiedGroupKFold if is_stratified else GroupKFold
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of labels with fewer rows than there are folds
        return list(splitter(num_folds, shuffle=True, random_state=seed).split(sources, labels, sources))
