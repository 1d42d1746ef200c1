"""Passages from any text as train, dev and test of a fill-mask task."""

from __future__ import annotations

from bertline.foundation.seeds import seed_for
from bertline.tasks.bad_rows import BadRows
from bertline.tasks.built import BuiltTask
from bertline.tasks.config import FillMaskTaskConfig
from bertline.tasks.plain_text import Passage, read_passages
from bertline.tasks.source_files import cut_by_key, drop_repeated, same_text, split_files
from bertline.tasks.storage import SplitName
from bertline.tasks.stored_rows import PlainRows


def fill_mask_task(config: FillMaskTaskConfig) -> BuiltTask:
    """Read the files, cut the splits that they lack from train, and put train into a random order.

    The side of a passage is a hash of its words, so equal passages stay together. One that also stands in a split
    closer to the test is left out and counted.

    Raises:
        DataError: Naming file and line, what was found and how to mend it.
    """
    source = config.source
    bad_rows = BadRows(source.on_bad_row)
    splits: dict[SplitName, list[Passage]] = {
        split: read_passages(file, source, bad_rows)
        for split, file in split_files(source.path, source.train_file, source.dev_file, source.test_file).items()
    }
    for split, fraction in (("test", config.test_fraction), ("dev", config.dev_fraction)):
        if split not in splits:
            splits[split], splits["train"] = cut_by_key(splits["train"], _words, split, fraction, config.split_seed)
    dropped = bad_rows.dropped + drop_repeated(splits, _words, "passage")
    splits["train"].sort(key=lambda row: (seed_for(config.split_seed, "order", row.id), row.id))
    if config.num_train_rows is not None:
        splits["train"] = splits["train"][: max(config.num_train_rows, *config.label_efficiency_rows, 0)]
    return BuiltTask(
        splits={
            split: PlainRows([row.id for row in splits[split]], [row.text for row in splits[split]])
            for split in ("train", "dev", "test")
        },
        labels=(),
        dropped=dropped,
        versions={},
    )


def _words(passage: Passage) -> str:
    return same_text([passage.text])
