"""The stage `task_data`: convert the rows of any source into train, dev and test splits with a manifest."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertline.corpus.tables import JSON_LINES, TableRow, parsed_records, value_in
from bertline.demo.config import DocsSourceConfig, PythonDocsConfig
from bertline.demo.docstrings import package_versions, read_modules
from bertline.foundation.bad_rows import BadRow, BadRows
from bertline.foundation.errors import ConfigError, DataError
from bertline.foundation.files import folder_written_atomically
from bertline.foundation.manifests import write_manifest
from bertline.foundation.progress import say
from bertline.kinds.registry import TaskConfig, kind_named
from bertline.tasks import stored_rows
from bertline.tasks.cells import text_in
from bertline.tasks.source_config import TableSourceConfig
from bertline.tasks.source_files import no_rows, same_text, trains_nothing
from bertline.tasks.table_source import table_layout


def build_task(
    name: str, config: TaskConfig, python_docs: PythonDocsConfig, out: Path, *, num_workers: int = 1
) -> dict[str, float | int]:
    """Build the rows of one task.

    Returns:
        Number of rows of each split and, where the task has them, number of labels and of documents.

    Raises:
        DataError: The data is invalid. The message names file and line where there is one.
    """
    kind = kind_named(config.kind)
    if isinstance(config.source, DocsSourceConfig):
        task = kind.build(name, config, read_modules(python_docs, num_workers=num_workers))
        versions = package_versions(python_docs)
    else:
        task = kind.build(name, config)
        versions = task.versions
    _check(name, config, task)
    if config.unlabelled is not None:
        task.splits["unlabelled"] = unlabelled_rows(Path(config.unlabelled), config.source, task)
    counts = {split: len(rows) for split, rows in task.splits.items()}
    groups = {split: len(set(rows.clusters)) for split, rows in task.splits.items() if rows.clusters is not None}
    with folder_written_atomically(out) as folder:
        for split, rows in task.splits.items():
            stored_rows.write_rows(folder, split, rows)
        if task.collection is not None:
            stored_rows.write_rows(folder, stored_rows.COLLECTION, task.collection)
        content = {
            "task": name,
            "task_kind": config.kind,
            "labels": list(task.labels),
            "metric": config.metric,
            "counts": counts,
            **({"groups": groups} if groups else {}),
            "dropped": {reason: number for reason, number in sorted(task.dropped.items()) if number},
            "source": config.source.kind,
            "versions": versions,
            **task.more,
        }
        write_manifest(folder, kind=stored_rows.TASK_KIND, format_version=stored_rows.TASK_FORMAT, content=content)
    sizes, of_groups = (", ".join(f"{number:,} {split}" for split, number in each.items()) for each in (counts, groups))
    labels = (f", {len(task.labels)} labels" if task.labels else "") + (f", groups: {of_groups}" if groups else "")
    dropped = sum(task.dropped.values())
    say(f"{name}: {sizes} rows{labels}" + (f"; {dropped:,} left out or repaired, see the manifest" if dropped else ""))
    figures = {"num_labels": task.labels, "num_documents": task.collection or ()}
    return {
        **{f"{split}_rows": count for split, count in counts.items()},
        **{figure: len(things) for figure, things in figures.items() if len(things)},
    }


def unlabelled_rows(path: Path, source: Any, task: stored_rows.BuiltTask) -> stored_rows.StoredRows:
    """Read rows without labels as rows like those of train, whose labels mean nothing; leave out, and count, those that
    are also held out. Columns are those of the source's texts, or `words`, `question` and `context`, or `query`.

    Raises:
        ConfigError: The kind of task has no rows without labels.
        DataError: A row lacks a text.
    """
    train = task.splits["train"]
    if not isinstance(
        train, stored_rows.PairedRows | stored_rows.TaggedRows | stored_rows.QuestionRows | stored_rows.QueryRows
    ):
        raise ConfigError("tasks of this kind have no rows without labels; set unlabelled to null.")
    inputs = {"words": "words", "questions": "question", "contexts": "context", "queries": "query"}
    inputs["texts"] = getattr(source, "text_column", "text")
    inputs["text_pairs"] = getattr(source, "text_pair_column", "text_pair")
    columns = {name: column for name, column in inputs.items() if getattr(train, name, None) is not None}

    def parse(record: TableRow) -> list[Any]:
        cells = [value_in(record, column) for column in columns.values()]
        texts = [cell if isinstance(cell, list) else text_in(cell) or "" for cell in cells]
        if not all(texts):
            raise BadRow("empty_text", f"a text is empty (of {', '.join(map(str, columns.values()))})")
        return [record.where, *texts]

    layout = replace(table_layout(source) if isinstance(source, TableSourceConfig) else JSON_LINES, format="auto")
    bad_rows = BadRows("error", option=None)
    records = parsed_records(path, layout, bad_rows, parse)
    bad_rows.end()
    if not records:
        raise DataError(f"{path} has no rows without labels. Give a file with some, or set unlabelled to null.")
    ids, *texts = map(list, zip(*records, strict=True))
    values: dict[str, Any] = dict(zip(columns, texts, strict=True))
    if isinstance(train, stored_rows.TaggedRows):
        values |= {"documents": ids, "tags": [[task.labels[0]] * len(words) for words in values["words"]]}
    elif isinstance(train, stored_rows.QuestionRows):
        values |= {"titles": ids, "answers": [[] for _ in ids], "starts": [[] for _ in ids]}
    elif task.collection is not None:  # a batch needs documents: one for each query, in turn
        documents = itertools.cycle(task.collection.ids)
        values |= {"document_ids": [[next(documents)] for _ in ids], "relevances": [[1] for _ in ids]}
    rows = replace(train.take([0] * len(ids)), ids=ids, clusters=None, **values)
    held_out = {same_text([text]) for name in task.splits.keys() - {"train"} for text in task.splits[name].texts_read()}
    new = [place for place, text in enumerate(rows.texts_read()) if same_text([text]) not in held_out]
    task.dropped["unlabelled_row_also_in_dev_or_test"] += len(ids) - len(new)
    return rows.take(new)


def _check(name: str, config: TaskConfig, task: stored_rows.BuiltTask) -> None:
    """Check that no split is empty or has one target only, and that train has the requested number of rows.

    Train may be empty if nothing is trained.
    """
    for split, rows in task.splits.items():
        if not len(rows) and not (split == "train" and trains_nothing(config)):
            raise DataError(no_rows(name, split, task.dropped))
    for split, targets in task.targets.items():
        # A test without positives gives accuracy 1 to whoever never says yes, and F1 0 to everybody: neither is a
        # score. Accuracy of an extra test of one label is one, its recall.
        if len(targets) == 1 and not (split.startswith("test_") and config.metric == "accuracy"):
            target = ", ".join(map(repr, *targets)) or "no label, entity or answer"
            raise DataError(
                f"tasks.{name}: all {split} rows have {target}, so no score can tell one model from another. Give "
                f"{split} rows with other labels (three of each at least, where one file has all), raise a cap on its "
                "rows, or leave its file out: it is cut from train then."
            )
    num_train = len(task.splits["train"])
    for size in (config.num_train_rows, *config.label_efficiency_rows):
        if size is not None and size > num_train:
            raise DataError(
                f"tasks.{name}: {size} train rows are asked for (num_train_rows, label_efficiency_rows), but there are "
                f"{num_train}. Ask for at most so many."
            )
