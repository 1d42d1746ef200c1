"""fit: what `bertline finetune` does with files, in Python with rows in memory."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bertline
from bertline.cli.composition import composed_in_python
from bertline.cli.finetune import IGNORED, fine_tuned
from bertline.foundation.errors import BertlineError, ConfigError, DataError
from bertline.foundation.files import write_atomically

if TYPE_CHECKING:
    from bertline.inference.model import LoadedModel


def fit(
    splits: Mapping[str, Any],
    columns: Mapping[str, str | None],
    start_from: str | Path | None,
    overrides: Mapping[str, Any],
) -> LoadedModel:
    """See `bertline.fit`; `columns` are names, or None, by the argument of the command, such as `text_column`."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise ConfigError("a process of bertline.fit imports this script: call it under `if __name__ == '__main__':`")
    asked = {key: name for key, name in columns.items() if name is not None}
    tables = {split: _columns(split, table, asked) for split, table in splits.items()}
    files = {
        split: "".join(json.dumps(dict(zip(asked.values(), row, strict=True)), default=_plain) + "\n" for row in rows)
        for split, (rows, _) in tables.items()
    }
    arguments = [f"{key}={json.dumps(value, ensure_ascii=False, default=str)}" for key, value in overrides.items()]
    with composed_in_python("finetune", arguments, IGNORED) as composed:
        # Named by its content, so that the same call resumes.
        digest = hashlib.sha256(json.dumps(files).encode()).hexdigest()[:12]
        folder = Path(composed["runtime"]["runs_folder"]).resolve() / "finetune" / f"rows-{digest}"
        for split, content in files.items():
            write_atomically(folder / f"{split}.jsonl", content)
            composed[split] = str(folder / f"{split}.jsonl")
        composed |= {key: str(name) for key, name in asked.items()}
        composed["name"] = composed["name"] or re.sub(r"[^A-Za-z0-9_]+", "_", str(columns["label_column"]))
        if start_from is not None:
            composed["start_from"] = str(Path(start_from).resolve() if Path(start_from).exists() else start_from)
        try:
            result = fine_tuned(composed)
        except BertlineError as error:
            raise type(error)(_in_pythons_terms(str(error).replace(f"{folder}/", ""), tables)) from error
    model = bertline.load(result["export"])
    model.result = result
    return model


def _columns(split: str, table: Any, asked: Mapping[str, str]) -> tuple[list[tuple[Any, ...]], Sequence[Any]]:
    """Return the cells of the named columns by row, and the index of each row.

    Raises:
        DataError: There is no such column, or an entry of a list is no mapping.
    """
    names = getattr(table, "column_names", getattr(table, "columns", None))  # datasets, else data frames
    if names is None:
        entries = list(table)
        for place, row in enumerate(entries):
            if not isinstance(row, Mapping):
                problem = f"{split}, index {place}: {row!r} is no dictionary."
                raise DataError(f"{problem} Give a data frame, a dataset, or a list of dictionaries, one a row.")
        names = dict.fromkeys(name for row in entries for name in row)
        table = {name: [row.get(name) for row in entries] for name in names}
    for argument, name in asked.items():
        if name not in names:
            shown = ", ".join(map(repr, names))
            raise DataError(_in_pythons_terms(f"{split} has no column {name!r} ({argument}). It has {shown}.", {}))
    cells = {name: list(table[name]) for name in asked.values()}
    label = asked["label_column"]
    if classes := getattr(getattr(table, "features", {}).get(label), "names", None):  # a dataset's numbers of classes
        cells[label] = [classes[number] if number is not None and number >= 0 else None for number in cells[label]]
    rows = list(zip(*cells.values(), strict=True))
    return rows, getattr(table, "index", range(len(rows)))


def _plain(value: Any) -> Any:
    """Return a cell of a data frame as JSON can hold it: NumPy's numbers and arrays, dates, missing values."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return None if str(value) in ("<NA>", "NaT") else str(value)


def _in_pythons_terms(message: str, tables: Mapping[str, tuple[Any, Sequence[Any]]]) -> str:
    """Return a message with arguments of `bertline.fit`, and the index of a row instead of its line in a file."""

    def place(match: re.Match[str]) -> str:
        (_, index), line = tables.get(match[1], ((), ())), int(match[2] or 0)
        return f"{match[1]}, index {index[line - 1]}" if 0 < line <= len(index) else match[1]

    message = re.sub(r"\b(train|dev|test)\.jsonl(?::(\d+))?", place, message)
    return re.sub(r"\b(text|label|group)(?:_pair)?_column\b", r"\1", message)
