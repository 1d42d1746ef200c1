"""Train, dev and test splits of a classification task, from any source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import assert_never

import numpy as np
import pyarrow.parquet as pq
import pyarrow.types as types

from bertline.demo.config import DocsLibrarySourceConfig, DocsMatchSourceConfig, DocsSourceConfig
from bertline.demo.docstrings import ModuleDocs
from bertline.demo.tasks import docs_library_rows, docs_match_rows
from bertline.foundation.errors import ConfigError, DataError
from bertline.foundation.labels import ordered_labels
from bertline.kinds.classification.config import ClassificationTaskConfig
from bertline.tasks.bad_rows import BadRows, label_in
from bertline.tasks.source_config import HubSourceConfig, TableSourceConfig
from bertline.tasks.source_files import (
    LabelledRow,
    SourceRows,
    clusters_of,
    fewest_train_rows,
    num_rows_made,
    shortened,
    text_pairs_of,
)
from bertline.tasks.stored_rows import BuiltTask, MultiLabelRows, SplitName, TextRows, read_rows
from bertline.tasks.table_source import OneLabel, SeveralLabels, read_table, table_versions

_Splits = dict[SplitName, list[LabelledRow[tuple[str, ...]]]]


def built_task(name: str, config: ClassificationTaskConfig, modules: Iterable[ModuleDocs] = ()) -> BuiltTask:
    """Read and split the rows, and map labels to indices.

    Raises:
        DataError: The data is invalid. The message names file and line, the problem and how to fix it.
    """
    splits, dropped = _labelled_splits(config, modules)
    labels = _label_names(name, config, splits)
    try:
        config.check_two_labels(labels)
    except ValueError as error:
        raise DataError(f"tasks.{name}: {error}. Take another metric, or name two labels.") from error
    known = BadRows(getattr(config.source, "on_bad_row", "error"))
    splits = {split: _with_known_labels(name, split, rows, labels, known) for split, rows in splits.items()}
    splits = shortened(splits, config, dropped)
    _check_labels(name, config, splits["train"])
    return BuiltTask(
        splits={split: _stored(rows, labels, config.multi_label) for split, rows in splits.items()},
        labels=tuple(labels),
        dropped=dropped + known.dropped,
        versions={} if isinstance(config.source, DocsSourceConfig) else table_versions(config.source),
        targets={split: {tuple(sorted(row.label)) for row in rows} for split, rows in splits.items()},
        more={
            "pair": any(row.text_pair is not None for row in splits["train"]),
            "labels_by_split": {split: _counted(rows, labels) for split, rows in splits.items()},
        },
    )


def _labelled_splits(config: ClassificationTaskConfig, modules: Iterable[ModuleDocs]) -> tuple[_Splits, Counter[str]]:
    """Return the rows of each split with their labels as tuples, of length 1 in single-label tasks."""
    if config.multi_label:
        if not isinstance(config.source, TableSourceConfig | HubSourceConfig):
            raise ConfigError(f"multi_label: a source of kind {config.source.kind} has one label a row. Set it false.")
        several = read_table(config.source, config, SeveralLabels)
        return several.by_split(), several.dropped
    source = _read_source(config, modules)
    splits: _Splits = {
        split: [LabelledRow(row.id, row.text, row.text_pair, (row.label,), row.cluster) for row in rows]
        for split, rows in source.by_split().items()
    }
    return splits, source.dropped


def _read_source(config: ClassificationTaskConfig, modules: Iterable[ModuleDocs]) -> SourceRows[str]:
    num_rows, seed = num_rows_made(config), config.split_seed
    match config.source:
        case DocsLibrarySourceConfig():
            return docs_library_rows(modules, config.source, num_train_rows=num_rows, seed=seed)
        case DocsMatchSourceConfig():
            return docs_match_rows(modules, config.source, num_train_rows=num_rows, seed=seed)
        case TableSourceConfig() | HubSourceConfig():
            return read_table(config.source, config, OneLabel)
        case _:
            assert_never(config.source)


def _label_names(name: str, config: ClassificationTaskConfig, splits: _Splits) -> list[str]:
    if config.labels is not None:
        return list(map(label_in, config.labels))
    train = splits["train"]
    labels = list(ordered_labels(label for row in train for label in row.label))
    # A wrong label column (numbers, free text) would otherwise give thousands of classes. Dev and test count too: cut
    # from one file, they have a row of each label, which may leave train only one.
    num_rows = sum(len(splits[split]) for split in ("train", "dev", "test"))
    if len(train) > 20 and len(labels) > num_rows / 2:
        raise DataError(
            f"tasks.{name}: the {num_rows} rows have {len(labels)} different labels ({labels[0]!r}, "
            f"{labels[1]!r}, ...). Is source.label_column the right column?"
        )
    return labels


def _with_known_labels(
    name: str, split: SplitName, rows: list[LabelledRow[tuple[str, ...]]], labels: list[str], bad_rows: BadRows
) -> list[LabelledRow[tuple[str, ...]]]:
    known, kept = set(labels), []
    for row in rows:
        unknown = [label for label in row.label if label not in known]
        if not unknown:
            kept.append(row)
            continue
        bad_rows.report(
            "unknown_label",
            f"tasks.{name}, {split} row {row.id}: the label is {unknown[0]!r}; allowed are "
            f"{', '.join(map(repr, labels))}. Fix the row or add the label to tasks.{name}.labels. "
            "(A split without labels cannot be scored: set its file, source.dev_file or source.test_file, to null, and "
            "it is cut from train.)",
        )
    return kept


def _check_labels(name: str, config: ClassificationTaskConfig, train: list[LabelledRow[tuple[str, ...]]]) -> None:
    """Check that the smallest requested training set has at least two different labels or label sets.

    In a multi-label task a single label is enough if some rows have it and others do not.
    """
    smallest = train[: fewest_train_rows(config, len(train))]
    label_sets = {tuple(sorted(row.label)) for row in smallest}
    if len(label_sets) == 1:
        labels = ", ".join(map(repr, *label_sets)) or "no label"
        needs = "rows with a label and rows without it" if config.multi_label else "at least two labels"
        raise DataError(
            f"tasks.{name}: all {len(smallest)} train rows have the label {labels}; a classifier needs {needs}. Check "
            "source.label_column, or add rows of the other kind."
        )


def _counted(rows: list[LabelledRow[tuple[str, ...]]], labels: list[str]) -> dict[str, int]:
    counts = Counter(label for row in rows for label in row.label)
    return {label: counts[label] for label in labels}


def _stored(
    rows: list[LabelledRow[tuple[str, ...]]], labels: list[str], multi_label: bool
) -> TextRows | MultiLabelRows:
    ids, texts, pairs = [row.id for row in rows], [row.text for row in rows], text_pairs_of(rows)
    clusters = clusters_of(rows)
    numbers = {label: number for number, label in enumerate(labels)}
    if not multi_label:
        ids_of_labels = np.array([numbers[row.label[0]] for row in rows], dtype=np.int64)
        return TextRows(ids, texts, pairs, ids_of_labels, clusters=clusters)
    matrix = np.zeros((len(rows), len(labels)), dtype=np.int64)
    for place, row in enumerate(rows):
        matrix[place, [numbers[label] for label in row.label]] = 1
    return MultiLabelRows(ids, texts, pairs, matrix, clusters=clusters)


def stored_rows(folder: Path, split: SplitName) -> TextRows | MultiLabelRows:
    """Read a split that the stage has written."""
    file = folder / f"{split}.parquet"
    several = file.exists() and types.is_list(pq.read_schema(file).field("labels").type)
    return read_rows(folder, split, MultiLabelRows) if several else read_rows(folder, split, TextRows)
