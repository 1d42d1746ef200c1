"""Train, dev and test splits of a regression task."""

from __future__ import annotations

import re
from functools import partial

import numpy as np

from bertline.foundation.errors import DataError
from bertline.kinds.regression.config import RegressionTaskConfig
from bertline.tasks.source_files import LabelledRow, clusters_of, fewest_train_rows, shortened, text_pairs_of
from bertline.tasks.stored_rows import BuiltTask, NumberRows, read_rows
from bertline.tasks.table_source import ANumber, read_table, table_versions


def built_task(name: str, config: RegressionTaskConfig) -> BuiltTask:
    """Read and split the rows.

    Raises:
        DataError: The data is invalid. The message names file and line, the problem and how to fix it.
    """

    def read_numbers(pattern: re.Pattern[str] | None, separator: str | None, names: list[str] | None) -> ANumber:
        return ANumber(config.low, config.high, pattern)

    source = read_table(config.source, config, read_numbers)
    shorter = shortened(source.by_split(), config, source.dropped)
    splits = {split: _stored(rows) for split, rows in shorter.items()}
    _check_numbers(name, config, splits["train"])
    return BuiltTask(
        splits={**splits},
        dropped=source.dropped,
        versions=table_versions(config.source),
        targets={
            split: {(f"{number:g}",) for number in rows.numbers.tolist()}
            for split, rows in splits.items()
            if split != "train"  # the numbers of train need not occur in the others
        },
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
        clusters=clusters_of(rows),
    )


stored_rows = partial(read_rows, rows_class=NumberRows)
"""Reads a split that the stage has written."""
