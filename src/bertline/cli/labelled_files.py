"""Labelled files named on the command line: the split of each, and how it is read."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast, get_args

from bertline.foundation.errors import ConfigError, DataError
from bertline.tasks.bad_rows import BadRows
from bertline.tasks.conll import split_columns
from bertline.tasks.decoded_files import beginning_of, guesses
from bertline.tasks.source_config import Separator
from bertline.tasks.stored_rows import SplitName
from bertline.tasks.table_source import JSON_LINES, read_records
from bertline.tasks.tags import OUTSIDE, scheme_of

FileFormat = Literal["csv", "tsv", "jsonl", "parquet", "conll", "squad", "questions"]
"""`questions` is the format of TREC, `CLASS:sub question`, one row per line."""

_BY_ENDING: dict[str, FileFormat] = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".conll": "conll",
    ".iob": "conll",
    ".iob2": "conll",
    ".bio": "conll",
}
_SPLIT_NAMES: dict[SplitName, str] = {"train": "train(ing)?", "dev": "dev|valid(ation)?|val|eval", "test": "test"}
_LAYOUT_LINES = 20_000
_QUESTION = re.compile(r"[A-Z]+:\w+ \S")


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
        asked_format: None detects it from the extension and the first lines.

    Raises:
        ConfigError: Both were named, or test without train.
        DataError: A file is missing, the split of a folder's files is ambiguous, or no format fits.
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
            key = "data" if data is not None else split
            raise DataError(f"{key} is {path}, which is not a file.")
    if asked_format is not None:
        if asked_format not in get_args(FileFormat):
            raise ConfigError(f"format is {asked_format!r}; it is one of {', '.join(get_args(FileFormat))}.")
        return GivenFiles(files=named, format=cast(FileFormat, asked_format))
    formats = {split: format_of(path) for split, path in named.items()}
    if len(set(formats.values())) > 1:
        told = ", ".join(f"{named[split]} looks like {found}" for split, found in formats.items())
        raise DataError(f"{told}. All files of a task have one format; name it with format= if that is wrong.")
    return GivenFiles(files=named, format=formats["train"])


def format_of(path: Path) -> FileFormat:
    """Return the format of a file, from its extension and its first lines (see `sniffing.guesses`).

    Rows with the columns of SQuAD (`context`, `question`, `answers`) are SQuAD, as `datasets` writes it.

    Raises:
        DataError: Neither determines one format, or the file is damaged.
    """
    found = _format_of(path)
    if found not in ("jsonl", "parquet"):
        return found
    first = next(read_records(path, replace(JSON_LINES, format=found), BadRows("skip")), None)
    return "squad" if first is not None and first.values.keys() >= {"context", "question", "answers"} else found


def _format_of(path: Path) -> FileFormat:
    ending = Path(path.name.removesuffix(".gz")).suffix.lower()
    if ending in _BY_ENDING:
        return _BY_ENDING[ending]
    start = beginning_of(path, "utf-8")
    found = guesses(start)
    if found == ["parquet"] or found == ["conll"]:
        return found[0]
    full = [line for line in start.lines if line.strip()]
    if ending == ".json" or found == ["jsonl"]:
        return "jsonl" if found == ["jsonl"] and not isinstance(json.loads(full[0]).get("data"), list) else "squad"
    if full and all(_QUESTION.match(line) for line in full[:100]):
        return "questions"
    if ending == ".tsv":
        return "tsv"
    if not found and start.text.lstrip()[:1] == "{":  # a JSON object over several lines
        return "squad"
    if len(found) == 1:
        return found[0]
    if found:
        why = f"its lines can be {' or '.join(found)}"
    else:
        why = "its lines are neither words with tags nor have they as many fields each by tabs or commas"
    raise DataError(
        f"{path}: the format cannot be told from the ending {ending!r}, and {why}. Name it: format=csv, tsv, jsonl, "
        "parquet, conll, squad or questions."
    )


def conll_layout(path: Path, encoding: str, *, tag_column: int = -1) -> dict[str, str]:
    """Return the `separator` and the `scheme` of a CoNLL file, detected from its lines.

    Raises:
        ConfigError: The encoding is unknown.
        DataError: A line does not have the tag column.
    """
    try:
        codecs.lookup(encoding)
    except LookupError as error:
        raise ConfigError(f"encoding is {encoding!r}, which Python does not know.") from error
    lines = [
        line for line in beginning_of(path, encoding).lines[:_LAYOUT_LINES] if not line.startswith(("#", "-DOCSTART-"))
    ]
    full = [line for line in lines if line.strip()]
    separator: Separator = "tab" if full and all("\t" in line for line in full) else "whitespace"
    try:
        tags = [split_columns(line, separator)[tag_column].strip() if line.strip() else OUTSIDE for line in lines]
    except IndexError as error:
        raise DataError(f"{path}: a line has no column {tag_column} (tag_column).") from error
    return {"separator": separator, "scheme": scheme_of(tags)}


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
