"""A task's section of the configuration, built from labelled files and command-line options."""

from __future__ import annotations

import copy
import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertline.foundation.errors import ConfigError, DataError
from bertline.foundation.files import sha256_of_file
from bertline.orchestration.given_files import FileFormat, GivenFiles, conll_layout
from bertline.tasks.table_files import TableLayout, read_records

Column = str | int
Base = Callable[[str], dict[str, Any]]
"""Function that returns a task of conf/task by its name."""

_BASES: dict[str, str] = {
    "classification": "table",
    "regression": "stsb",
    "token_classification": "wnut17",
    "question_answering": "squad",
}
_KINDS: dict[FileFormat, tuple[str, ...]] = {"conll": ("token_classification",), "squad": ("question_answering",)}
# Usual names of columns in public data sets, most likely first.
_TEXTS = ("text", "sentence", "question", "content", "review", "document", "message", "tweet", "body", "utterance")
_LABELS = ("label", "labels", "class", "category", "target", "intent", "sentiment", "score", "y")
_PATHLESS = {"train_file": None, "dev_file": None, "test_file": None}


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskOptions:
    """Command-line options for the files; None if not given (the text and label columns are detected then)."""

    kind: str | None
    text_column: Column | None
    text_pair_column: Column | None
    label_column: Column | None
    header: bool
    quoting: bool
    separator: str | None
    encoding: str
    cluster_column: Column | None = None


def task_of_files(given: GivenFiles, options: TaskOptions, base: Base) -> dict[str, Any]:
    """Return the task for the files; `placed` sets the path of its source.

    Raises:
        ConfigError: The files do not fit the requested kind.
        DataError: A column is missing, or the one to read is ambiguous.
    """
    fitting = _KINDS.get(given.format, ("classification", "regression"))
    kind = options.kind or fitting[0]
    if kind not in fitting:
        raise ConfigError(
            f"kind is {kind!r}, and the files are {given.format}, which are for {' or '.join(fitting)}. "
            "Other kinds of task have a file in conf/task; name it with task=."
        )
    task = copy.deepcopy(base("trec" if given.format == "questions" else _BASES[kind]))
    for key in ("space", "fine_tuning"):  # specific to the data set of the base configuration
        task[key] = {}
    if given.format == "conll":
        columns = {"word_column": _number(options.text_column, 0), "tag_column": _number(options.label_column, -1)}
        layout = conll_layout(given.files["train"], options.encoding, tag_column=columns["tag_column"])
        task["source"] |= {**columns, **layout, "types": None, "encoding": _plain(options.encoding)}
    elif given.format == "questions":
        task["labels"] = None
    elif given.format != "squad":
        task["source"] |= _table_source(given, options)
        task |= _scale(list(given.files.values()), task["source"]) if kind == "regression" else {"labels": None}
    return task


def placed(task: dict[str, Any], given: GivenFiles, folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Link the task's files in one folder, which is named after a digest of the links' names and the files' content.

    The folder holds nothing else, so its digest is the digest of the data.

    Returns:
        The task, and a mapping from the links to the paths of the files, for messages.
    """
    # Messages, reports and predictions name a row by the file's own name.
    links = {split: path.name for split, path in given.files.items()}
    if len(set(links.values())) < len(links):
        links = {split: f"{split}_{name}" for split, name in links.items()}
    content = "".join(f"{split}\0{links[split]}\0{sha256_of_file(path)}\n" for split, path in given.files.items())
    place = folder / hashlib.sha256(content.encode()).hexdigest()[:12]
    place.mkdir(parents=True, exist_ok=True)
    names: dict[str, str | None] = {**_PATHLESS}
    own: dict[str, str] = {}
    for split, path in given.files.items():
        link = place / links[split]
        if not (link.is_symlink() and link.readlink() == path.resolve()):  # a run may be reading through it
            link.unlink(missing_ok=True)
            link.symlink_to(path.resolve())
        names[f"{split}_file"] = link.name
        own[str(link)] = str(path)
    return {**task, "source": {**task["source"], **names, "path": place.as_posix()}}, own


def task_name_of(given: GivenFiles | None, asked: str | None) -> str:
    """Return the task's name: `asked`, else the stem of the train file, or its folder's name if the stem is `train`.

    Raises:
        ConfigError: `asked` cannot be part of a file name.
    """
    if asked is not None:
        if re.fullmatch(r"[A-Za-z0-9_]+", asked) is None or asked == "encoder":
            raise ConfigError(f"name is {asked!r}; give letters, digits and underscores, and not `encoder`.")
        return asked
    assert given is not None  # a task without files is named after its file in conf/task
    path = given.files["train"].resolve()
    stem = path.name.partition(".")[0]
    words = path.parent.name if re.fullmatch("train(ing)?", stem.lower()) else stem
    return re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_") or "task"


def columns_of(path: Path, source: Mapping[str, Any]) -> list[Column]:
    """Return the columns of a table's first row.

    Raises:
        DataError: The table has no row, or it cannot be read.
    """
    first = next(iter(read_records(path, _layout(source))), None)
    if first is None:
        raise DataError(f"{path} has no rows.")
    return list(first.values)


def _table_source(given: GivenFiles, options: TaskOptions) -> dict[str, Any]:
    source: dict[str, Any] = {
        "kind": "table",
        "format": given.format,
        "header": options.header,
        "quoting": options.quoting,
        "separator": options.separator,
        "encoding": options.encoding,
        "extra_tests": {},
        "label_pattern": None,
        "max_fields": None,
        "extra_fields": "error",
        "text_pair_column": options.text_pair_column,
        "cluster_column": options.cluster_column,
    }
    path = given.files["train"]
    columns = columns_of(path, source)
    wanted = (("text_column", options.text_column, _TEXTS), ("label_column", options.label_column, _LABELS))
    for key, asked, usual in wanted:
        if asked is not None and asked not in columns:
            raise DataError(f"{path} has no column {asked!r} ({key}). {_listed(columns)}")
        source[key] = _usual(columns, usual) if asked is None else asked
        if source[key] is None:
            raise DataError(
                f"{path}: which column is the {key.removesuffix('_column')} cannot be told: none is called "
                f"{', '.join(usual[:4])} or the like. {_listed(columns)} Name it: {key}=COLUMN."
            )
    for key in ("text_pair_column", "cluster_column"):
        if source[key] is not None and source[key] not in columns:
            raise DataError(f"{path} has no column {source[key]!r} ({key}). {_listed(columns)}")
    return source


def _layout(source: Mapping[str, Any]) -> TableLayout:
    return TableLayout(
        source["format"], source["header"], source["quoting"], source["encoding"], separator=source["separator"]
    )


def _usual(columns: Sequence[Column], usual: Sequence[str]) -> Column | None:
    by_name = {str(column).lower(): column for column in columns}
    return next((by_name[name] for name in usual if name in by_name), None)


def _listed(columns: Sequence[Column]) -> str:
    return f"It has the columns {', '.join(map(repr, columns))}."


def _scale(paths: Sequence[Path], source: Mapping[str, Any]) -> dict[str, float]:
    """Return the smallest and the largest number of the label column over all splits: a test row may have the largest.

    Raises:
        DataError: A row has no finite number in this column.
    """
    low, high = math.inf, -math.inf
    for path in paths:
        for record in read_records(path, _layout(source)):
            found = record.values.get(source["label_column"])
            try:
                number = float(found)  # type: ignore[arg-type]  # a value that is not a number is handled below
            except (TypeError, ValueError):
                number = math.nan
            if not math.isfinite(number):
                raise DataError(
                    f"{path}:{record.line}: {source['label_column']!r} is {found!r}, which is no "
                    "number (kind=regression). Fix the row, or leave kind out."
                )
            low, high = min(low, number), max(high, number)
    return {"low": low, "high": high}


def _number(column: Column | None, default: int) -> int:
    if column is None:
        return default
    if not isinstance(column, int):
        raise ConfigError(f"column {column!r}: the columns of a CoNLL file have numbers, from 0 (-1 is the last).")
    return column


def _plain(encoding: str) -> str:
    """Return the encoding without the byte order mark, which only the readers of tables handle."""
    return "utf-8" if encoding == "utf-8-sig" else encoding
