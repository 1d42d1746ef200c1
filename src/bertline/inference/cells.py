"""Validated access to the columns of an input row."""

from __future__ import annotations

import json
from typing import Any

from bertline.foundation.errors import DataError
from bertline.inference.predictor import InputColumn
from bertline.tasks.bad_rows import BadRow
from bertline.tasks.json_lines import require_whole_characters
from bertline.tasks.table_files import Record


def cell(record: Record, column: InputColumn) -> Any:
    """Return the value of a column: a text or a list of texts.

    Raises:
        DataError: The column is missing, its value has another type, or it is empty where that is not allowed; the
            message names file and line.
    """
    if column.name not in record.values:
        found = ", ".join(str(name) for name in record.values)
        raise DataError(
            f"{record.where}: no column {column.name!r}; found {found}. Name the column that has the {column.holds}."
        )
    value = record.values[column.name]
    if column.holds == "texts" and isinstance(value, str):
        value = _list_in(value, value)
        try:
            require_whole_characters(value)
        except BadRow as bad:
            raise DataError(f"{record.where}: column {column.name!r}: {bad}. Fix or drop the row.") from bad
    is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
    fits = {"text": isinstance(value, str), "texts": is_list, "text or texts": is_list or isinstance(value, str)}
    if not fits[column.holds]:
        expected = {"text": "a text", "texts": "a list of texts (in CSV as JSON)"}.get(
            column.holds, "a text or a list of texts"
        )
        raise DataError(
            f"{record.where}: column {column.name!r} is {value!r}; expected {expected}. Fix or drop the row."
        )
    if not column.may_be_empty and not "".join(value).strip():
        raise DataError(f"{record.where}: column {column.name!r} is empty. Fix or drop the row.")
    return value


def _list_in(text: str, otherwise: Any) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return otherwise
