"""Train, dev and test splits of a regression task."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from bertline.foundation.errors import DataError
from bertline.kinds.regression.config import RegressionTaskConfig
from bertline.tasks.label_values import ANumber
from bertline.tasks.rows import LabelledRow, text_pairs_of
from bertline.tasks.source_files import capped, fewest_train_rows, num_rows_made
from bertline.tasks.stored_rows import BuiltTask, NumberRows, SplitName, read_rows
from bertline.tasks.table_source import read_table, table_versions


def built_task(name: str, config: RegressionTaskConfig) -> BuiltTask:
    """Read and split the rows.

    Raises:
        DataError: The data is invalid. The message names file and line, the problem and how to fix it.
    """

    def read_numbers(pattern: re.Pattern[str] | None, separator: str | None, names: list[str] | None) -> ANumber:
        return ANumber(config.low, config.high, pattern)

    source = read_table(config.source, config, read_numbers)
    splits = {
        split: _stored(capped(rows, lambda row: row.id, split, config, source.dropped))
        for split, rows in source.by_split().items()
    }
    splits["train"] = splits["train"].first(num_rows_made(config))
    _check_numbers(name, config, splits["train"])
    return BuiltTask(
        splits={**splits},
        labels=(),
        dropped=source.dropped,
        versions=table_versions(config.source),
        more={
            "pair": splits["train"].text_pairs is not None,
            "mean_by_split": {split: float(rows.numbers.mean()) for split, rows in splits.items() if len(rows)},
        },
    )


def _check_numbers(name: str, config: RegressionTaskConfig, train: NumberRows) -> None:
    smallest = train.numbers[: fewest_train_rows(config, len(train))]
    if len(smallest) and (smallest == smallest[0]).all():
        raise DataError(
            f"tasks.{name}: all {len(smallest)} train rows have the number {smallest[0]:g}; there is nothing to learn. "
            "Check source.label_column, or add rows with other numbers."
        )


def _stored(rows: list[LabelledRow[float]]) -> NumberRows:
    return NumberRows(
        [row.id for row in rows],
        [row.text for row in rows],
        text_pairs_of(rows),
        np.array([row.label for row in rows], dtype=np.float64),
    )


def stored_rows(folder: Path, split: SplitName) -> NumberRows:
    """Read a split that the stage has written."""
    return read_rows(folder, split, NumberRows)
