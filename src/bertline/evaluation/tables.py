"""Curves as CSV files for `dvc plots`, and data read from the predictions."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bertline.evaluation.facts import Facts, PipelineFolders, TaskFacts
from bertline.pretraining.objectives.base import ShownTable
from bertline.pretraining.objectives.registry import shown_tables


def write_tables(facts: Facts, line: PipelineFolders, folder: Path) -> None:
    """Write `curves/*.csv` and `confusion/TASK.csv`.

    `dvc.yaml` plots the curves of all objectives; those of other objectives have only a header, as do task tables
    without tasks.
    """
    for shown in shown_tables():
        head = ["step", "train", "validation", *([] if shown.baseline is None else [shown.baseline])]
        _write(folder / "curves" / f"{shown.name}.csv", head, _curves(facts, shown))
    efficiency = (
        [task.name, row["arm"], row["rows"], row["test_mean"], row["test_std"]]
        for task in facts.tasks
        for row in task.result.get("label_efficiency") or []
    )
    head = ["task", "arm", "rows", "test_mean", "test_std"]
    _write(folder / "curves" / "label_efficiency.csv", head, efficiency)
    (folder / "confusion").mkdir()
    for task in facts.tasks:
        if not (task.result.get("confusion_matrix") or (task.result.get("details") or {}).get("confusion_matrix")):
            continue
        table = pq.read_table(line.sweeps[task.name] / "predictions.parquet", columns=["gold", "predicted"])
        pairs = zip(*(column.to_pylist() for column in table.columns), strict=True)
        _write(folder / "confusion" / f"{task.name}.csv", ["actual", "predicted"], pairs)


def row_correctness(sweep: Path, task: TaskFacts) -> dict[str, list[float]]:
    """Return, by test split, the correctness (0 to 1) of the best model on each row; splits without it are omitted."""
    found = {}
    for split in task.result["test_splits"]:
        path = sweep / ("predictions.parquet" if split == "test" else f"predictions_{split}.parquet")
        if not path.exists() or "correct" not in pq.read_schema(path).names:
            continue
        values = pq.read_table(path, columns=["correct"])["correct"].to_pylist()
        if all(value is not None and 0 <= value <= 1 for value in values):
            found[split] = [float(value) for value in values]
    return found


def _curves(facts: Facts, shown: ShownTable) -> Iterable[Sequence[Any]]:
    curves = _joined(facts.curve(f"train/{shown.metric}"), facts.curve(f"val/{shown.metric}"))
    baseline = [] if shown.baseline is None else [facts.baselines.get(shown.metric, "")]
    return ([*row, *baseline] for row in curves)


def _joined(*curves: list[tuple[float, float]]) -> list[list[Any]]:
    """Join curves by step; a cell is empty where a curve has no value."""
    columns = [dict(curve) for curve in curves]
    steps = sorted(set().union(*columns))
    return [[step, *(column.get(step, "") for column in columns)] for step in steps]


def _write(path: Path, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(rows)
