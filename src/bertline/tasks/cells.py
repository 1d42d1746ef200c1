"""Cells of tables as texts and labels, and lines as JSON objects."""

import ast
import json
import re
from contextlib import suppress

# Cells of tables as texts and as labels: one reading for training, prediction and MLflow's server.
#
# CSV has texts alone; JSON and Parquet have numbers and booleans too; pandas turns whole numbers into fractions where
# a cell is missing, and booleans into `True` where it writes CSV. The same cell is the same text and label in all.

# Largest number up to which a float holds every whole number.
_MOST_WHOLE = 1 << 53
_WHOLE = re.compile(r"([+-]?\d+)\.0+")


def text_in(value: object) -> str | None:
    """Return the text of a cell: a text without outer white space, a number in digits; None if it is missing, a boolean
    or no single value.

    >>> text_in(" 1984"), text_in(1984), text_in(1984.0), text_in(1.5), text_in(True), text_in(["a"])
    ('1984', '1984', '1984', '1.5', None, None)
    """
    if value is None or isinstance(value, bool | list | tuple | dict | bytes) or value != value:
        return None
    if isinstance(value, float) and value.is_integer() and abs(value) <= _MOST_WHOLE:
        return str(int(value))
    return str(value).strip()


def list_in(value: object) -> object:
    """Return the list that a cell of text shows as JSON or as Python prints it; any other cell unchanged.

    >>> list_in("['a', 'b']"), list_in('["a"]'), list_in("['a' 'b']"), list_in("[a]"), list_in([1])
    (['a', 'b'], ['a'], "['a' 'b']", '[a]', [1])
    """
    if not isinstance(value, str) or not (text := value.strip()).startswith("["):
        return value
    for parse in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            parsed = parse(text)
            # Python reads the two words of NumPy's ['a' 'b'] as one.
            if isinstance(parsed, list) and (parse is json.loads or repr(parsed) == text):
                return parsed
    return value


def one_line(text: str) -> str:
    """Replace every run of white space by one space, and strip both ends.

    >>> one_line("  a wing\\nin a  slipstream . ")
    'a wing in a slipstream .'
    """
    return " ".join(text.split())


def label_in(value: object) -> str:
    """Return the label of a cell, without outer white space; empty if the cell is missing.

    Whole numbers have no fraction, and booleans are `true` and `false`, whether the cell holds them or their text.

    >>> [label_in(value) for value in (1, 1.0, "1.0", True, "TRUE", " good ", None)]
    ['1', '1', '1', 'true', 'true', 'good', '']
    """
    label = str(value) if isinstance(value, bool) else text_in(value) or ""
    if label.lower() in ("true", "false"):
        return label.lower()
    whole = _WHOLE.fullmatch(label)
    return whole[1] if whole else label
