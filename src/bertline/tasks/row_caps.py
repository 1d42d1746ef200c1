"""Limits on the number of dev and test rows, by a seeded sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from bertline.foundation.seeds import seed_for
from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.storage import SplitName

Item = TypeVar("Item")


def capped(
    items: Sequence[Item], key: Callable[[Item], str], split: SplitName, config: BaseTaskConfig, dropped: Counter[str]
) -> list[Item]:
    """Return at most the configured number of rows of dev or test, in order; train and smaller splits are unchanged.

    The rows whose keys have the lowest hashes are kept, so each row is equally likely, and a larger limit keeps all
    rows of a smaller one.

    Args:
        items: Rows of a split.
        key: Returns the id of a row, unique in the split.
        split: `train`, `dev`, `test` or `test_NAME`.
        config: Provides `max_dev_rows`, `max_test_rows` and `split_seed`.
        dropped: Counts dropped rows as `SPLIT_row_above_max_..._rows`; updated in place.
    """
    side = "dev" if split == "dev" else "test"
    most = config.max_dev_rows if side == "dev" else config.max_test_rows
    if split == "train" or most is None or len(items) <= most:
        return list(items)
    draws = [
        (seed_for(config.split_seed, "cap", split, key(item)), key(item), place) for place, item in enumerate(items)
    ]
    kept = sorted(place for _, _, place in sorted(draws)[:most])
    dropped[f"{split}_row_above_max_{side}_rows"] += len(items) - most
    return [items[place] for place in kept]
