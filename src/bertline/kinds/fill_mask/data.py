"""Train, dev and test splits of a fill-mask task, from any text."""

from __future__ import annotations

from pathlib import Path

from bertline.kinds.fill_mask.config import FillMaskTaskConfig
from bertline.tasks.built import BuiltTask
from bertline.tasks.plain_text import Passage, read_passages
from bertline.tasks.source_files import read_splits, same_text
from bertline.tasks.storage import SplitName, read_rows
from bertline.tasks.stored_rows import PlainRows


def built_task(name: str, config: FillMaskTaskConfig) -> BuiltTask:
    """Read the files, cut missing splits from train, and shuffle train.

    A hash of its words assigns a passage to a split, so equal passages stay together. A train passage that also occurs
    in dev or test, or a dev passage that also occurs in test, is dropped and counted.

    Raises:
        DataError: The data is invalid. The message names file and line, the problem and how to fix it.
    """
    source = config.source
    splits, dropped = read_splits(
        source, config, lambda file, bad_rows: read_passages(file, source, bad_rows), same=_words, name="passage"
    )
    return BuiltTask(
        splits={
            split: PlainRows([row.id for row in splits[split]], [row.text for row in splits[split]])
            for split in ("train", "dev", "test")
        },
        labels=(),
        dropped=dropped,
    )


def _words(passage: Passage) -> str:
    return same_text([passage.text])


def stored_rows(folder: Path, split: SplitName) -> PlainRows:
    """Read a split that the stage has written."""
    return read_rows(folder, split, PlainRows)
