"""The order of labels, and the label of positions that have none."""

import re
from collections.abc import Iterable

IGNORED_LABEL = -100
"""Label of unused entries and of positions that no loss counts: the default `ignore_index` of
PyTorch."""
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")


def ordered_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Return the different labels in the order of their ids: by value if all are numbers, else by
    text.

    >>> ordered_labels(["10", "2", "0", "1", "2"]), ordered_labels(["10", "2", "none"])
    (('0', '1', '2', '10'), ('10', '2', 'none'))
    """
    different = sorted(set(labels))
    return tuple(sorted(different, key=float) if all(map(_NUMBER.fullmatch, different)) else different)
