"""A task's section of the configuration, built from labelled files and command-line options."""

from __future__ import annotations

import copy
import hashlib
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

from bertline.corpus.files import without_compression
from bertline.corpus.tables import FORMATS_BY_ENDING, JSON_LINES, TableLayout, read_records
from bertline.foundation.bad_rows import BadRow, BadRows
from bertline.foundation.errors import ConfigError, DataError
from bertline.foundation.files import sha256_of_file
from bertline.kinds.classification import ClassificationTaskConfig
from bertline.kinds.question_answering import QuestionAnsweringTaskConfig
from bertline.kinds.regression import RegressionTaskConfig
from bertline.kinds.token_classification import TokenClassificationTaskConfig
from bertline.tasks.cells import label_in
from bertline.tasks.source_config import ConllSourceConfig, SquadSourceConfig, TableSourceConfig
from bertline.tasks.span_files import annotated_table
from bertline.tasks.stored_rows import SplitName
from bertline.tasks.table_source import ANumber

FileFormat = Literal["csv", "tsv", "jsonl", "json", "xlsx", "parquet", "conll", "squad"]

_BY_ENDING: dict[str, FileFormat] = {**FORMATS_BY_ENDING, **dict.fromkeys((".conll", ".iob", ".iob2", ".bio"), "conll")}
_SPLIT_NAMES: dict[SplitName, str] = {"train": "train(ing)?", "dev": "dev|valid(ation)?|val|eval", "test": "test"}


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenFiles:
    """Files of a task, at least that of train, in one format."""

    files: Mapping[SplitName, Path]
    format: FileFormat


def given_files(
    data: Path | None, splits: Mapping[SplitName, Path | None], asked_format: str | None
) -> GivenFiles | None:
    """Return the files that were named, after checking that each exists; None if none was named.

    Args:
        data: One file that all splits are cut from, or a folder of files named after the splits.
        asked_format: None takes that of the extension.
    """
    named = {split: path for split, path in splits.items() if path is not None}
    if data is not None and named:
        raise ConfigError(
            f"data={data} and {', '.join(named)} are both given; name one file (or folder) that has all rows, or a "
            "file for each split."
        )
    if named and "train" not in named:
        raise ConfigError(f"{', '.join(named)} is given without train: name the file to train on, train=FILE.")
    if data is not None:
        named = _of_folder(data) if data.is_dir() else {"train": data}
    if not named:
        return None
    for split, path in named.items():
        if not path.is_file():
            raise DataError(f"{split if data is None else 'data'} is {path}, which is not a file.")
    if asked_format is not None:
        if asked_format not in get_args(FileFormat):
            raise ConfigError(f"format is {asked_format!r}; it is one of {', '.join(get_args(FileFormat))}.")
        return GivenFiles(files=named, format=cast(FileFormat, asked_format))
    formats = {split: file_format(path) for split, path in named.items()}
    if len(set(formats.values())) > 1:
        told = ", ".join(f"{named[split]} looks like {found}" for split, found in formats.items())
        raise DataError(f"{told}. All files of a task have one format; name it with format= if that is wrong.")
    return GivenFiles(files=named, format=formats["train"])


def file_format(path: Path) -> FileFormat:
    """Return the format of a file by its extension; articles, or rows with the columns of SQuAD, are SQuAD."""
    ending = Path(without_compression(path.name)).suffix
    if (found := _BY_ENDING.get(ending)) is None:
        raise DataError(
            f"{path}: the ending {ending!r} tells no format. Name it: format={', '.join(get_args(FileFormat))}."
        )
    if found not in ("jsonl", "json", "parquet"):
        return found
    first = next(read_records(path, replace(JSON_LINES, format=found), BadRows("skip")), None)
    columns = () if first is None else first.values.keys()
    return "squad" if {"context", "question", "answers"} <= {*columns} or "paragraphs" in columns else found


def search_task(data: Path | None, base: Base) -> dict[str, Any] | None:
    """Return the task of a folder with documents, queries and judgements; None if `data` is no such folder."""
    if data is None or not (any(data.glob("corpus.*")) and any(data.glob("queries.*"))):
        return None
    files = {path.stem: str(path.relative_to(data)) for path in (*data.glob("qrels.?sv"), *data.glob("qrels/*.?sv"))}
    all_of = files.get("qrels") or files.get("test") or files.get("train")
    if all_of is None:
        raise DataError(f"data is {data}, which has a corpus and queries, and no qrels.tsv or qrels/test.tsv.")
    task, train = base("beir"), files.get("train") if "test" in files else None
    task["source"] |= {"train_qrels": train, "dev_qrels": files.get("dev"), "test_qrels": all_of}
    return task


def _of_folder(folder: Path) -> dict[SplitName, Path]:
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    found: dict[SplitName, Path] = {}
    for split, pattern in _SPLIT_NAMES.items():
        matching = [path for path in files if re.search(rf"(^|[^a-z])({pattern})([^a-z]|$)", path.name.lower())]
        if len(matching) == 1:
            found[split] = matching[0]
        elif matching:
            told = ", ".join(path.name for path in matching)
            raise DataError(
                f"data is {folder}, where {told} could each be {split}. Name the files: train=FILE test=FILE."
            )
    if "train" not in found:
        held = ", ".join(path.name for path in files) or "no files"
        raise DataError(f"data is {folder}, which has no file called train; it holds {held}. Name one: train=FILE.")
    return found


Column = str | int
Base = Callable[[str], dict[str, Any]]
"""Function that returns a task of conf/task by its name."""

_BASES: dict[str, str] = {
    "classification": "table",
    "regression": "stsb",
    "token_classification": "wnut17",
    "question_answering": "squad",
}
_KINDS: dict[FileFormat, tuple[str, ...]] = {
    "conll": ("token_classification",), "squad": ("question_answering",),
}  # fmt: skip
# Usual names of columns in public data sets, most likely first.
_TEXTS = ("text", "sentence", "question", "content", "review", "document", "message", "tweet", "body", "utterance")
_LABELS = ("label", "labels", "class", "category", "target", "intent", "sentiment", "score", "y")
_CONLL_COLUMNS = {"text_column": "word_column", "label_column": "tag_column"}
_COLUMNS = ("text_column", "label_column", "text_pair_column", "group_column")
_PATHLESS = {"train_file": None, "dev_file": None, "test_file": None}
_USUAL: dict[str, Any] = {
    **dict.fromkeys(_COLUMNS), **_PATHLESS, "on_bad_row": "error", "label_columns": None, "label_separator": None,
    "header": True, "quoting": True, "separator": None, "encoding": "utf-8-sig",
    "extra_tests": {}, "label_pattern": None, "max_fields": None, "extra_fields": "error",
}  # fmt: skip
"""A table, where nothing else was given; columns of texts and labels are told by their names then."""
_CONFIGS = (
    ClassificationTaskConfig, RegressionTaskConfig, TokenClassificationTaskConfig, QuestionAnsweringTaskConfig,
    TableSourceConfig, ConllSourceConfig, SquadSourceConfig,
)  # fmt: skip
OTHER_ARGUMENTS = {
    "path": "data", "train_file": "train", "dev_file": "dev", "test_file": "test", "extra_tests": "test",
    "start_from": "start_from", "num_trials": "trials", "space": "sweep.space", "fine_tuning": "sweep.fine_tuning",
}  # fmt: skip
"""Keys of a task that have an argument of another name, which does more than set them."""
SETTINGS = frozenset(each.name for config in _CONFIGS for each in fields(config)) - {
    "kind", "source", "format", *OTHER_ARGUMENTS,
}  # fmt: skip
"""Keys of the tasks that files can be, and of their sources: arguments of the same names set them."""


def task_of_files(given: GivenFiles, kind: str | None, settings: Mapping[str, Any], base: Base) -> dict[str, Any]:
    """Return the task for the files; `placed` sets the path of its source.

    Args:
        kind: Kind of task; None: the usual one of the format, and of a table with spans or tags.
        settings: Values of `SETTINGS` that were given; other columns are told by their names.
    """
    annotated = annotations_in(given, settings)
    fitting = _KINDS.get(given.format, ("classification", "regression")) if annotated is None else _KINDS["conll"]
    kind = kind or fitting[0]
    if kind not in fitting:
        raise ConfigError(
            f"kind is {kind!r}, and the files are {', '.join([given.format, *(annotated or ())[:1]])}, which are for "
            f"{' or '.join(fitting)}. "
            "Other kinds of task have a file in conf/task; name it with task=."
        )
    task = copy.deepcopy(base(_BASES[kind]))
    for key in ("space", "fine_tuning"):  # specific to the data set of the base configuration
        task[key] = {}
    if given.format == "conll":
        settings = {_CONLL_COLUMNS.get(key, key): value for key, value in settings.items()}
        columns = {key: _number(settings.get(key), place) for key, place in (("word_column", 0), ("tag_column", -1))}
        task["source"] |= {**columns, "separator": "whitespace", "types": None}
    elif given.format != "squad":
        if settings.get("header", True):  # names that are numbers, which the command line gives as such
            settings = {key: str(one) if key in _COLUMNS and type(one) is int else one for key, one in settings.items()}
        task["source"] = _table_source(given, settings if annotated is None else {**settings, **annotated[1]})
        if kind == "classification":
            task |= {"labels": None, "multi_label": bool({"label_columns", "label_separator"} & settings.keys())}
    task = with_settings(task, settings)
    if kind == "regression" and not settings.keys() >= {"low", "high"}:
        scale = _scale(list(given.files.values()), task["source"])
        task |= {key: settings.get(key, bound) for key, bound in scale.items()}
    return task


def annotations_in(given: GivenFiles, settings: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Return what wrote the spans or tags of the train file, and its columns; None if it has none."""
    if given.format in _KINDS or settings.get("label_columns") is not None:
        return None
    return annotated_table(given.files["train"], _layout({**_USUAL, **settings, "format": given.format}), settings)


def with_settings(task: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the task with values of its keys, or of its source's keys, replaced."""
    own, source = dict(task), dict(task["source"])
    for key, value in settings.items():
        if key in ("labels", "types") and isinstance(value, list):
            value = [label_in(each) for each in value]
        holder = source if key in source else own
        if key not in holder:
            known = sorted(SETTINGS & {*own, *source})
            raise ConfigError(
                f"{key}={value} means nothing here: the task is a {own['kind']} of the source {source['kind']}, which "
                f"has no such key. It has {', '.join(known)}. Leave {key} out."
            )
        holder[key] = value
    return {**own, "source": source}


def what_is_read(task: Mapping[str, Any], given: GivenFiles | None) -> str:
    """Return the columns that the task reads, as arguments, and those that it leaves out, for display."""
    source = task["source"]
    columns = {key: source[key] for key in source if "_column" in key and source[key] is not None}
    told = [f"{key}={column}" for key, column in columns.items() if key != "label_columns"]
    told += [f"label_columns=[{','.join(map(str, columns['label_columns']))}]"] if "label_columns" in columns else []
    what = [source["kind"], task["kind"]]
    if given is not None and source["kind"] == "table":
        source = {**source, "format": given.format}
        annotated = annotations_in(given, {**source, **dict.fromkeys(_COLUMNS)})
        what = [given.format, *(annotated or ())[:1], task["kind"]]
        read = [*columns.values(), *columns.get("label_columns", ()), *(["answer"] if annotated else [])]
        left_out = [str(column) for column in columns_of(given.files["train"], source) if column not in read]
        told += [f"not read: {', '.join(left_out)}"] if left_out else []
    paths = [Path(source.get("path") or source["kind"])] if given is None else given.files.values()
    return f"{', '.join(path.name for path in paths)} as {', '.join(what)}" + (f": {', '.join(told)}" if told else "")


def placed(task: dict[str, Any], given: GivenFiles, folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Link the task's files in one folder; return the task, and the user's path of each link, for messages.

    The folder is named after a digest of names and content. It holds nothing else, so its digest is that of the data.
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
    """Return the task's name: `asked`, else the stem of the train file, or its folder's name if the stem is `train`."""
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
    """Return the columns of a table's first row."""
    # An invalid row is reported where all are read, unless there is no other.
    layout = _layout(source)
    first = next(read_records(path, layout, BadRows("skip")), None) or next(read_records(path, layout), None)
    if first is None:
        raise DataError(f"{path} has no rows.")
    return list(first.values)


def _table_source(given: GivenFiles, settings: Mapping[str, Any]) -> dict[str, Any]:
    source: dict[str, Any] = {"kind": "table", "format": given.format, **_USUAL}
    source |= {key: value for key, value in settings.items() if key in source}
    path = given.files["train"]
    columns = columns_of(path, source)
    asked = [(key, source[key]) for key in _COLUMNS]
    asked += [("label_columns", column) for column in source["label_columns"] or ()]
    named = {column for _, column in asked}
    for key, column in asked:
        if column is not None and column not in columns:
            raise DataError(f"{path} has no column {column!r} ({key}). {_listed(columns)}")
    for key, usual in (("text_column", _TEXTS), ("label_column", _LABELS)):
        if source[key] is None and not (key == "label_column" and source["label_columns"]):
            source[key] = _usual(path, key, columns, named, usual)
    return source


def _layout(source: Mapping[str, Any]) -> TableLayout:
    keys = ("format", "header", "quoting", "encoding", "separator", "max_fields", "extra_fields")
    try:
        return TableLayout(**{key: source[key] for key in keys})
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _usual(path: Path, key: str, columns: Sequence[Column], named: set[Column | None], usual: Sequence[str]) -> Column:
    """Return the column with a usual name that no argument names."""
    fitting = [column for name in usual for column in columns if str(column).lower() == name and column not in named]
    if len(fitting) == 1:
        return fitting[0]
    problem = f"{path}: which column is the {key.removesuffix('_column')} cannot be told: "
    if len(columns) == 1 and (marks := set(str(columns[0])) & set(";|\t")):
        separator = shlex.quote(marks.pop())
        raise DataError(f"{problem}{_listed(columns)} Give what separates the columns: separator={separator}")
    if not fitting:
        raise DataError(
            f"{problem}none is called {', '.join(usual[:4])} or the like. {_listed(columns)} Name it: {key}=COLUMN."
        )
    one = [f"{key}={shlex.quote(str(column))}" for column in fitting]
    pair = f"{one[0]} text_pair_column={one[1].partition('=')[2]}"
    raise DataError(
        f"{problem}it can be {' or '.join(map(repr, fitting))}. {_listed(columns)} Name it: {' or '.join(one)}"
        + (f"; for pairs of texts: {pair}" if key == "text_column" and None in named else "")
    )


def _listed(columns: Sequence[Column]) -> str:
    return f"It has the columns {', '.join(map(repr, columns))}."


def _scale(paths: Sequence[Path], source: Mapping[str, Any]) -> dict[str, float]:
    """Return the smallest and largest number of the label column over all splits: a test row may have the largest."""
    pattern = None if source["label_pattern"] is None else re.compile(source["label_pattern"])
    number_in = ANumber(-math.inf, math.inf, pattern)
    numbers: set[float] = set()
    for path in paths:
        # The stage that reads all rows says what is bad.
        for record in read_records(path, _layout(source), BadRows("skip")):
            with suppress(BadRow):
                numbers.add(number_in(record.values.get(source["label_column"])))
    numbers -= {math.inf, -math.inf}
    if len(numbers) < 2:
        raise DataError(
            f"{paths[0]}: the column {source['label_column']!r} has fewer than two different numbers, so there is "
            "nothing to learn. Name another: label_column=COLUMN."
        )
    return {"low": min(numbers), "high": max(numbers)}


def _number(column: Column | None, default: int) -> int:
    if not isinstance(column, int | None):
        raise ConfigError(f"column {column!r}: the columns of a CoNLL file have numbers, from 0 (-1 is the last).")
    return default if column is None else column
