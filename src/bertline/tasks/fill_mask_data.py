"""Passages from any text as train, dev and test of a fill-mask task."""

from __future__ import annotations

from bertline.tasks.bad_rows import BadRows
from bertline.tasks.built import BuiltTask
from bertline.tasks.config import FillMaskTaskConfig
from bertline.tasks.plain_text import Passage, read_passages
from bertline.tasks.source_files import read_splits, same_text
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
    splits, repeated = read_splits(
        source,
        config,
        lambda file: read_passages(file, source, bad_rows),
        kept_together=_words,
        same=_words,
        name="passage",
    )
    return BuiltTask(
        splits={
            split: PlainRows([row.id for row in splits[split]], [row.text for row in splits[split]])
            for split in ("train", "dev", "test")
        },
        labels=(),
        dropped=bad_rows.dropped + repeated,
        versions={},
    )


def _words(passage: Passage) -> str:
    return same_text([passage.text])
