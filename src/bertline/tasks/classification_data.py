"""Rows with labels from any source, as train, dev and test of a classification task."""

from __future__ import annotations

from typing import assert_never

import numpy as np

from bertline.corpus.config import PythonDocsConfig
from bertline.corpus.python_docs import package_versions, read_modules
from bertline.foundation.errors import DataError
from bertline.foundation.manifests import versions_of
from bertline.tasks.built import BuiltTask
from bertline.tasks.config import ClassificationTaskConfig
from bertline.tasks.docs_library import docs_library_rows
from bertline.tasks.docs_match import docs_match_rows
from bertline.tasks.rows import LabelledRow, SourceRows
from bertline.tasks.source_config import (
    DocsLibrarySourceConfig,
    DocsMatchSourceConfig,
    HubSourceConfig,
    TableSourceConfig,
)
from bertline.tasks.splits import with_all_splits
from bertline.tasks.storage import SplitName
from bertline.tasks.stored_rows import TextRows
from bertline.tasks.table_source import hub_rows, table_rows


def classification_task(
    name: str, config: ClassificationTaskConfig, python_docs: PythonDocsConfig, *, num_workers: int
) -> BuiltTask:
    """Read, split and number the rows.

    Raises:
        DataError: Naming file and line, what was found and how to mend it.
    """
    source = _read_source(config, python_docs, num_workers)
    splits: dict[SplitName, list[LabelledRow]] = {
        "train": source.train[: _num_rows_made(config)],
        "dev": source.dev or [],
        "test": source.test or [],
    }
    labels = _label_names(name, config, splits)
    rows = {split: _numbered(name, split, rows, labels) for split, rows in splits.items()}
    _check_labels(name, config, splits)
    by_split = {
        split: dict(zip(labels, np.bincount(split_rows.labels, minlength=len(labels)).tolist(), strict=True))
        for split, split_rows in rows.items()
    }
    return BuiltTask(
        splits={**rows},
        labels=tuple(labels),
        dropped=source.dropped,
        versions=_versions(config, python_docs),
        more={"pair": rows["train"].text_pairs is not None, "labels_by_split": by_split},
    )


def _num_rows_made(config: ClassificationTaskConfig) -> int | None:
    return None if config.num_train_rows is None else max(config.num_train_rows, *config.label_efficiency_rows, 0)


def _read_source(config: ClassificationTaskConfig, python_docs: PythonDocsConfig, num_workers: int) -> SourceRows:
    num_rows, seed = _num_rows_made(config), config.split_seed
    match config.source:
        case DocsLibrarySourceConfig():
            modules = read_modules(python_docs, num_workers=num_workers)
            return docs_library_rows(modules, config.source, num_train_rows=num_rows, seed=seed)
        case DocsMatchSourceConfig():
            modules = read_modules(python_docs, num_workers=num_workers)
            return docs_match_rows(modules, config.source, num_train_rows=num_rows, seed=seed)
        case TableSourceConfig():
            return with_all_splits(table_rows(config.source), config)
        case HubSourceConfig():
            return with_all_splits(hub_rows(config.source), config)
        case _:
            assert_never(config.source)


def _versions(config: ClassificationTaskConfig, python_docs: PythonDocsConfig) -> dict[str, str]:
    match config.source:
        case DocsLibrarySourceConfig() | DocsMatchSourceConfig():
            return package_versions(python_docs)
        case TableSourceConfig():
            return versions_of("pyarrow")
        case HubSourceConfig():
            return versions_of("datasets", "pyarrow")
        case _:
            assert_never(config.source)


def _label_names(name: str, config: ClassificationTaskConfig, splits: dict[SplitName, list[LabelledRow]]) -> list[str]:
    if config.labels is not None:
        return list(config.labels)
    labels = sorted({row.label for row in splits["train"]})
    # A column of numbers or of texts taken for labels would otherwise become thousands of classes.
    if len(splits["train"]) > 20 and len(labels) > len(splits["train"]) / 2:
        raise DataError(
            f"tasks.{name}: the {len(splits['train'])} train rows have {len(labels)} different labels ({labels[0]!r}, "
            f"{labels[1]!r}, ...). Is source.label_column the right column?"
        )
    return labels


def _check_labels(name: str, config: ClassificationTaskConfig, splits: dict[SplitName, list[LabelledRow]]) -> None:
    train = splits["train"]
    sizes = [size for size in (config.num_train_rows, *config.label_efficiency_rows) if size is not None]
    smallest = train[: min(sizes, default=len(train))]
    found = sorted({row.label for row in smallest})
    if len(found) == 1:
        raise DataError(
            f"tasks.{name}: all {len(smallest)} train rows have the label {found[0]!r}; a classifier needs at least "
            "two labels. Check source.label_column, or add rows of the other labels."
        )


def _numbered(name: str, split: SplitName, rows: list[LabelledRow], labels: list[str]) -> TextRows:
    numbers = {label: number for number, label in enumerate(labels)}
    for row in rows:
        if row.label not in numbers:
            raise DataError(
                f"tasks.{name}, {split} row {row.id}: the label is {row.label!r}; allowed are "
                f"{', '.join(map(repr, labels))}. Mend the row or add the label to tasks.{name}.labels. "
                "(A split without labels cannot be scored: set its file to null, and it is cut from train.)"
            )
    pairs = [row.text_pair for row in rows if row.text_pair is not None]
    return TextRows(
        [row.id for row in rows],
        [row.text for row in rows],
        pairs or None,
        np.array([numbers[row.label] for row in rows], dtype=np.int64),
    )
