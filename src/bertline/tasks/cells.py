"""Cells of tables as texts and as labels: one reading for training, prediction and MLflow's server.

CSV has texts alone; JSON and Parquet have numbers and booleans too; pandas turns whole numbers into fractions where a
cell is missing, and booleans into `True` where it writes CSV. The same cell is the same text and label in all of them.
"""

from __future__ import annotations

import re

# Largest number up to which a float holds every whole number.
_MOST_WHOLE = 1 << 53
_WHOLE = re.compile(r"([+-]?\d+)\.0+")


def text_in(value: object) -> str | None:
    """Return the text of a cell: a text as it is, a number in digits; None if it is missing, a boolean or no single
    value.

    Example:
        >>> text_in(" 1984"), text_in(1984), text_in(1984.0), text_in(1.5), text_in(True), text_in(["a"])
        (' 1984', '1984', '1984', '1.5', None, None)
    """
    if value is None or isinstance(value, bool | list | tuple | dict | bytes) or value != value:
        return None
    if isinstance(value, float) and value.is_integer() and abs(value) <= _MOST_WHOLE:
        return str(int(value))
    return str(value)


def label_in(value: object) -> str:
    """Return the label of a cell, without outer white space; empty if the cell is missing.

    Whole numbers have no fraction, and booleans are `true` and `false`, whether the cell holds them or their text.

    Example:
        >>> [label_in(value) for value in (1, 1.0, "1.0", True, "TRUE", " good ", None)]
        ['1', '1', '1', 'true', 'true', 'good', '']
    """
    label = str(value) if isinstance(value, bool) else (text_in(value) or "").strip()
    if label.lower() in ("true", "false"):
        return label.lower()
    whole = _WHOLE.fullmatch(label)
    return whole[1] if whole else label
