"""Most rows of dev and test: a sample that the split's seed decides."""

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
    """At most as many rows of dev or test as the task wants, in their order; train and smaller splits stay whole.

    The rows that stay are those whose keys have the lowest hashes, so that each is as likely as any other, and a larger
    cap keeps all rows of a smaller one.

    Args:
        items: The rows of a split.
        key: The row's id, unique in the split.
        split: `dev`, `test` or `test_NAME`.
        config: With `max_dev_rows`, `max_test_rows` and `split_seed`.
        dropped: What is left out is counted here, as `SPLIT_row_above_max_..._rows`.
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
