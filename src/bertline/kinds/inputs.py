"""Checks of the inputs of users."""

from collections.abc import Iterable, Mapping
from typing import Any

from bertline.corpus.tables import require_whole_characters
from bertline.foundation.bad_rows import BadRow
from bertline.foundation.errors import DataError
from bertline.tasks.cells import text_in
from bertline.tasks.config import BaseTaskConfig


def row_ids(count: int) -> list[str]:
    """Return ids for `count` rows without ids."""
    return [str(number) for number in range(count)]


def require_several(values: Any, name: str) -> list[Any]:
    """Return the values of a list, array or iterator (an open file, a generator) as a list, or raise a `DataError`."""
    if isinstance(values, str):
        raise DataError(f"{name} is one string; expected a list of strings, such as [{values[:30]!r}].")
    if isinstance(values, bytes | Mapping) or not isinstance(values, Iterable) or getattr(values, "ndim", 1) != 1:
        raise DataError(f"{name} is {values!r:.80}; expected a list of strings.")
    return list(values)


def require_text(value: Any, name: str) -> str:
    """Return the value if it is a string that can be encoded, or raise a `DataError`."""
    if not isinstance(value, str):
        raise DataError(f"{name} is {value!r:.80}; expected a string.")
    try:
        require_whole_characters(value)
    except BadRow as bad:
        raise DataError(f"{name}: {bad}. Correct the text.") from None
    return value


def require_texts(values: Any, name: str) -> list[str]:
    """Return the values as a list of strings, or raise a `DataError`."""
    return [require_text(value, f"{name}[{index}]") for index, value in enumerate(require_several(values, name))]


def require_pairs(
    first: Any, second: Any, names: tuple[str, str] = ("texts", "text_pairs")
) -> tuple[list[str], list[str]]:
    """Return both values as lists of strings of equal length, or raise a `DataError`."""
    one, other = require_texts(first, names[0]), require_texts(second, names[1])
    if len(one) != len(other):
        raise DataError(f"{len(one)} {names[0]} and {len(other)} {names[1]}; expected one of each for each pair.")
    return one, other


def require_pairing(config: BaseTaskConfig, *, is_pair: bool) -> None:
    """Raise a `DataError` if a task that was trained on pairs gets single texts, or the other way round."""
    if config.reads_pairs not in (None, is_pair):
        trained_on = "single texts; leave second texts out" if is_pair else "pairs of texts; give the second texts too"
        raise DataError(f"this model was trained on {trained_on} (text_pairs; in a file, text_pair_column=COLUMN).")


def texts_and_pairs(config: BaseTaskConfig, texts: Any, text_pairs: Any) -> tuple[list[str], list[str] | None]:
    """Return texts and, for a task of pairs, second texts as training reads them, or raise a `DataError`."""
    require_pairing(config, is_pair=text_pairs is not None)
    columns = [require_texts(texts, "texts")] if text_pairs is None else require_pairs(texts, text_pairs)
    first, *second = [[text_in(text) or "" for text in column] for column in columns]
    return first, second[0] if second else None
