"""From the rows of a source to train, dev and test that share no example."""

from __future__ import annotations

from collections import Counter

from bertline.foundation.seeds import seed_for
from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.rows import Label, LabelledRow, SourceRows
from bertline.tasks.source_files import cut_by_key


def fewest_train_rows(config: BaseTaskConfig, available: int) -> int:
    """How many rows the smallest training set has that is asked for; what there is to learn must stand in these."""
    sizes = [size for size in (config.num_train_rows, *config.label_efficiency_rows) if size is not None]
    return min([available, *sizes])


def with_all_splits(source: SourceRows[Label], config: BaseTaskConfig) -> SourceRows[Label]:
    """Cut the splits that a table does not have from its train rows, and put train into its random order.

    The side of a row is a hash of its texts (see `cut_by_key`): equal examples stay together, and rows added later move
    none of the others. A row whose texts also stand in a split closer to the test is dropped and counted; test sets are
    left whole.
    """
    test = source.test
    train, dev = list(source.train), source.dev
    if test is None:
        test, train = cut_by_key(train, LabelledRow.content_key, "test", config.test_fraction, config.split_seed)
    if dev is None:
        dev, train = cut_by_key(train, LabelledRow.content_key, "dev", config.dev_fraction, config.split_seed)
    dropped = Counter(source.dropped)
    in_test = {row.content_key() for row in test}
    dev = _without(dev, in_test, "dev_row_also_in_test", dropped)
    train = _without(train, in_test | {row.content_key() for row in dev}, "train_row_also_in_dev_or_test", dropped)
    for name, rows in sorted(source.extra_tests.items()):
        keys = {row.content_key() for row in rows}
        dev = _without(dev, keys, f"dev_row_also_in_test_{name}", dropped)
        train = _without(train, keys, f"train_row_also_in_test_{name}", dropped)
    train.sort(key=lambda row: (seed_for(config.split_seed, "order", row.id), row.id))
    return SourceRows(train, dev, test, dropped, source.extra_tests)


def _without(
    rows: list[LabelledRow[Label]], keys: set[str], reason: str, dropped: Counter[str]
) -> list[LabelledRow[Label]]:
    kept = [row for row in rows if row.content_key() not in keys]
    dropped[reason] += len(rows) - len(kept)
    return kept
