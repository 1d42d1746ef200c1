"""Documents with a label for each sentence, from JSONL files."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from bertline.foundation.errors import DataError
from bertline.foundation.labels import ordered_labels
from bertline.kinds.sentence_labelling.config import LabelledSentencesSourceConfig, SentenceLabellingTaskConfig
from bertline.tasks.bad_rows import BadRow, BadRows, label_in
from bertline.tasks.source_files import fewest_train_rows, read_splits, same_text
from bertline.tasks.stored_rows import BuiltTask, SplitName, StoredRows, read_rows
from bertline.tasks.table_source import JSON_LINES, Record, parsed_records, value_in


@dataclass(frozen=True, slots=True)
class SentenceRows(StoredRows):
    """Documents as lists of sentences, each with a label."""

    sentences: list[list[str]]
    labels: list[list[int]]
    """Indices into the manifest's `labels`, one for each sentence."""

    schema = pa.schema([("ids", pa.string()), ("sentences", pa.list_(pa.string())), ("labels", pa.list_(pa.int64()))])

    def texts_read(self) -> list[str]:
        return [" ".join(sentences) for sentences in self.sentences]


class LabelledDocument(NamedTuple):
    """A document of a source."""

    id: str
    sentences: list[str]
    labels: list[str]


def built_task(name: str, config: SentenceLabellingTaskConfig) -> BuiltTask:
    """Read the files, cut missing splits from train, and shuffle train.

    A hash of its text assigns a document to a split, so equal documents stay together. A train document that also
    occurs in dev or test, or a dev document that also occurs in test, is dropped and counted.

    Raises:
        DataError: The data is invalid. The message names file and line, the problem and how to fix it.
    """
    source = config.source
    splits, dropped = read_splits(
        source,
        config,
        lambda file, bad_rows: read_documents(file, source, bad_rows),
        same=_text,
        name="document",
        labels=lambda row: row.labels,
    )
    bad_rows = BadRows(source.on_bad_row)
    labels = tuple(map(label_in, config.labels or ())) or ordered_labels(
        label for row in splits["train"] for label in row.labels
    )
    stored = {split: _stored(name, split, splits[split], labels, bad_rows) for split in splits}
    smallest = stored["train"].first(fewest_train_rows(config, len(stored["train"])))
    if len({label for of_row in smallest.labels for label in of_row}) < 2 and len(smallest):
        raise DataError(
            f"tasks.{name}: all sentences of the {len(smallest)} train rows have the same label; there is nothing to "
            "learn. Check source.labels_column, or add rows."
        )
    return BuiltTask(
        splits={**stored},
        labels=labels,
        dropped=bad_rows.dropped + dropped,
        targets={split: {(labels[each],) for row in rows.labels for each in row} for split, rows in stored.items()},
        more={
            "sentences_by_split": {split: sum(map(len, rows.sentences)) for split, rows in stored.items()},
            "labels_by_split": {split: _counted(rows, labels) for split, rows in stored.items()},
        },
    )


stored_rows = partial(read_rows, rows_class=SentenceRows)
"""Reads a split that the stage has written."""


def read_documents(path: Path, source: LabelledSentencesSourceConfig, bad_rows: BadRows) -> list[LabelledDocument]:
    """Read the documents of a JSONL file, plain or gzip.

    Raises:
        DataError: The file cannot be read, or a row is invalid and invalid rows are errors. The message names the file
            and, where there is one, the line.
    """

    def parse(record: Record) -> LabelledDocument:
        sentences = [str(each).strip() for each in _list(record, source.sentences_column, (str,))]
        labels = [label_in(each) for each in _list(record, source.labels_column, (str, int))]
        _check(sentences, labels)
        return LabelledDocument(record.where, sentences, labels)

    return parsed_records(path, JSON_LINES, bad_rows, parse)


def _list(record: Record, column: str, types: tuple[type, ...]) -> list[object]:
    value = value_in(record, column)
    if not isinstance(value, list) or any(isinstance(each, bool) or not isinstance(each, types) for each in value):
        raise BadRow("wrong_type", f"{column!r} is not a list of {' or '.join(each.__name__ for each in types)}")
    return value


def _check(sentences: list[str], labels: list[str]) -> None:
    if not sentences or not all(sentences):
        raise BadRow("empty_sentence", "a sentence is empty" if sentences else "the document has no sentence")
    if not all(labels):
        raise BadRow("empty_label", "a label is empty")
    if len(sentences) != len(labels):
        raise BadRow("different_lengths", f"there are {len(sentences)} sentences and {len(labels)} labels")


def _text(row: LabelledDocument) -> str:
    return same_text([" ".join(row.sentences)])


def _stored(
    name: str, split: SplitName, rows: list[LabelledDocument], labels: tuple[str, ...], bad_rows: BadRows
) -> SentenceRows:
    numbers = {label: number for number, label in enumerate(labels)}
    kept = []
    for row in rows:
        unknown = [label for label in row.labels if label not in numbers]
        if not unknown:
            kept.append(row)
            continue
        message = f"tasks.{name}, {split} row {row.id}: a label is {unknown[0]!r}; allowed are {', '.join(labels)}."
        bad_rows.report("unknown_label", f"{message} Fix the row, or add the label to tasks.{name}.labels.")
    return SentenceRows.of((row.id, row.sentences, [numbers[label] for label in row.labels]) for row in kept)


def _counted(rows: SentenceRows, labels: tuple[str, ...]) -> dict[str, int]:
    counts = Counter(label for of_row in rows.labels for label in of_row)
    return {label: counts[number] for number, label in enumerate(labels)}
