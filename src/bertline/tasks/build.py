"""The stage `task_data`: convert the rows of any source into train, dev and test splits with a manifest."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from bertline.demo.config import DocsSourceConfig, PythonDocsConfig
from bertline.demo.docstrings import ModuleDocs, package_versions, read_modules
from bertline.foundation.errors import ConfigError, DataError
from bertline.foundation.files import folder_written_atomically
from bertline.foundation.manifests import write_manifest
from bertline.foundation.progress import say, warn
from bertline.kinds.registry import TaskConfig, kind_part
from bertline.tasks.bad_rows import BadRow, BadRows, text_in
from bertline.tasks.source_config import TableSourceConfig
from bertline.tasks.source_files import listed, same_text, trains_nothing
from bertline.tasks.stored_rows import (
    COLLECTION,
    FORMAT_VERSION,
    KIND,
    BuiltTask,
    PairedRows,
    QueryRows,
    QuestionRows,
    SplitName,
    StoredRows,
    TaggedRows,
    write_rows,
)
from bertline.tasks.table_source import JSON_LINES, Record, layout_of, parsed_records, value_in


class DataPart(Protocol):
    """Contract of `kinds/NAME/data.py`, which imports no torch."""

    def built_task(self, name: str, config: Any, modules: Iterable[ModuleDocs] = ()) -> BuiltTask:
        """Read the rows of the task's source and split them.

        Raises:
            DataError: The data is invalid. The message names file and line, the problem and how to fix it.
        """

    def stored_rows(self, folder: Path, split: SplitName) -> StoredRows:
        """Read a split that the stage has written."""


def build_task(
    name: str, config: TaskConfig, python_docs: PythonDocsConfig, out: Path, *, num_workers: int = 1
) -> dict[str, float | int]:
    """Build the rows of one task.

    Returns:
        Number of rows of each split and, where the task has them, number of labels and of documents.

    Raises:
        DataError: The data is invalid. The message names file and line where there is one.
    """
    data: DataPart = kind_part(config.kind, "data")
    if isinstance(config.source, DocsSourceConfig):
        task = data.built_task(name, config, read_modules(python_docs, num_workers=num_workers))
        versions = package_versions(python_docs)
    else:
        task = data.built_task(name, config)
        versions = task.versions
    _check(name, config, task)
    if config.unlabelled is not None:
        task.splits["unlabelled"] = unlabelled_rows(Path(config.unlabelled), config.source, task)
    counts = {split: len(rows) for split, rows in task.splits.items()}
    with folder_written_atomically(out) as folder:
        for split, rows in task.splits.items():
            write_rows(folder, split, rows)
        if task.collection is not None:
            write_rows(folder, COLLECTION, task.collection)
        content = {
            "task": name,
            "task_kind": config.kind,
            "labels": list(task.labels),
            "metric": config.metric,
            "counts": counts,
            "dropped": {reason: number for reason, number in sorted(task.dropped.items()) if number},
            "source": config.source.kind,
            "versions": versions,
            **task.more,
        }
        write_manifest(folder, kind=KIND, format_version=FORMAT_VERSION, content=content)
    sizes = ", ".join(f"{count:,} {split}" for split, count in counts.items())
    labels = f", {len(task.labels)} labels" if task.labels else ""
    dropped = sum(task.dropped.values())
    say(f"{name}: {sizes} rows{labels}" + (f"; {dropped:,} left out or repaired, see the manifest" if dropped else ""))
    figures = {f"{split}_rows": count for split, count in counts.items()}
    if task.labels:
        figures["num_labels"] = len(task.labels)
    if task.collection is not None:
        figures["num_documents"] = len(task.collection)
    return dict(figures)


def unlabelled_rows(path: Path, source: Any, task: BuiltTask) -> StoredRows:
    """Read rows without labels, in the columns of the source's texts or, of a source that is no table, those that
    `bertline predict` reads (words as a list); leave out, and count, those that are also in dev or a test set.

    Returns:
        Rows like those of train. Their labels mean nothing.

    Raises:
        ConfigError: The kind of task has no rows without labels.
        DataError: A row lacks a text.
    """
    train = task.splits["train"]
    match train:
        case PairedRows():
            columns = {"texts": getattr(source, "text_column", "text")}
            if train.text_pairs is not None:
                columns["text_pairs"] = getattr(source, "text_pair_column", "text_pair")
        case TaggedRows():
            columns = {"words": "words"}
        case QuestionRows():
            columns = {"questions": "question", "contexts": "context"}
        case QueryRows():
            columns = {"queries": "query"}
        case _:
            raise ConfigError("tasks of this kind have no rows without labels; set unlabelled to null.")

    def parse(record: Record) -> tuple[str, list[Any]]:
        values = [value_in(record, column) for column in columns.values()]
        values = [value if isinstance(value, list) else (text_in(value) or "").strip() for value in values]
        if not all(values):
            raise BadRow("empty_text", f"a text is empty; the columns read are {', '.join(map(str, columns.values()))}")
        return record.where, values

    layout = layout_of(source) if isinstance(source, TableSourceConfig) else JSON_LINES
    rows = parsed_records(path, replace(layout, format="auto"), BadRows("error", option=None), parse)
    ids = [where for where, _ in rows]
    values: dict[str, Any] = dict(zip(columns, map(list, zip(*(texts for _, texts in rows), strict=True)), strict=True))
    match train:
        case TaggedRows():
            values |= {"documents": ids, "tags": [[task.labels[0]] * len(words) for words in values["words"]]}
        case QuestionRows():
            values |= {"titles": ids, "answers": [[] for _ in ids], "starts": [[] for _ in ids]}
        case QueryRows():  # a batch needs documents: one for each query, in turn
            assert task.collection is not None
            turn = [task.collection.ids[place % len(task.collection)] for place in range(len(ids))]
            values |= {"document_ids": [[each] for each in turn], "relevances": [[1] for _ in ids]}
    found = replace(train.take([0] * len(ids)), ids=ids, clusters=None, **values)
    held_out = [other for split, other in task.splits.items() if split != "train"]
    known = {same_text([text]) for other in held_out for text in other.texts_read()}
    new = [place for place, text in enumerate(found.texts_read()) if same_text([text]) not in known]
    task.dropped["unlabelled_row_also_in_dev_or_test"] += len(ids) - len(new)
    return found.take(new)


def _check(name: str, config: TaskConfig, task: BuiltTask) -> None:
    """Check that no split is empty and that train has the requested number of rows, for any kind of task.

    Train may be empty if nothing is trained.
    """
    for split, rows in task.splits.items():
        if not len(rows) and not (split == "train" and trains_nothing(config)):
            left_out = ", ".join(f"{number} {reason}" for reason, number in task.dropped.most_common() if number)
            raise DataError(
                f"tasks.{name}: the {split} split has no rows. Give its file in the task's source, raise dev_fraction "
                "or test_fraction, or add rows."
                + (f" Rows were left out ({left_out}); is the source read as it is meant?" if left_out else "")
            )
    _check_targets(name, config.metric, task.targets)
    num_train = len(task.splits["train"])
    for size in (config.num_train_rows, *config.label_efficiency_rows):
        if size is not None and size > num_train:
            raise DataError(
                f"tasks.{name}: {size} train rows are asked for (num_train_rows, label_efficiency_rows), but there are "
                f"{num_train}. Ask for at most so many."
            )


def _check_targets(name: str, metric: str, targets: Mapping[SplitName, Collection[tuple[str, ...]]]) -> None:
    """Check that dev and each test have different targets, and warn about labels of train that they lack.

    A test without positives gives accuracy 1 to whoever never says yes, and F1 0 to everybody: neither is a score.
    Accuracy of an extra test of one label is one, its recall.
    """
    labels = {split: {label for target in of_split for label in target} for split, of_split in targets.items()}
    for split, of_split in targets.items():
        if len(of_split) == 1 and not (split.startswith("test_") and metric == "accuracy"):
            target = ", ".join(map(repr, *of_split)) or "no label, entity or answer"
            raise DataError(
                f"tasks.{name}: all {split} rows have {target}, so no score can tell one model from another. Give "
                f"{split} rows with other labels (three of each at least, where one file has all), raise a cap on its "
                "rows, or leave its file out: it is cut from train then."
            )
        if missing := sorted(labels.get("train", set()) - labels[split]):
            missing_labels = listed(list(map(repr, missing)))
            warn(f"tasks.{name}: {split} has no row of {missing_labels}, so no score on it counts these labels")
