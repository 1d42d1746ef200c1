"""Train, dev and test splits of a question answering task, from any SQuAD file."""

from __future__ import annotations

from pathlib import Path

from bertline.kinds.question_answering.config import QuestionAnsweringTaskConfig
from bertline.tasks.built import BuiltTask
from bertline.tasks.source_files import read_splits, same_text
from bertline.tasks.squad import Question, read_squad
from bertline.tasks.storage import SplitName, read_rows
from bertline.tasks.stored_rows import QuestionRows


def built_task(name: str, config: QuestionAnsweringTaskConfig) -> BuiltTask:
    """Read the files, cut missing splits from train by article, and shuffle train.

    A train question whose context also occurs in dev or test, or a dev question whose context also occurs in test, is
    dropped and counted, so that no context is scored after training on it.

    Raises:
        DataError: The data is invalid. The message names file, article and question, the problem and how to fix it.
    """
    source = config.source
    splits, dropped = read_splits(
        source,
        config,
        lambda file, bad_rows: read_squad(file, bad_rows, may_move=source.on_bad_row == "skip"),
        kept_together=lambda row: row.title,
        same=lambda row: same_text([row.context]),
        name="context",
    )
    return BuiltTask(
        splits={split: _stored(splits[split]) for split in ("train", "dev", "test")},
        labels=(),
        dropped=dropped,
        more={
            "articles": {split: len({row.title for row in rows}) for split, rows in splits.items()},
            "without_answer": {split: sum(not row.answers for row in rows) for split, rows in splits.items()},
        },
    )


def _stored(rows: list[Question]) -> QuestionRows:
    return QuestionRows(
        ids=[row.id for row in rows],
        titles=[row.title for row in rows],
        questions=[row.question for row in rows],
        contexts=[row.context for row in rows],
        answers=[row.answers for row in rows],
        starts=[row.starts for row in rows],
    )


def stored_rows(folder: Path, split: SplitName) -> QuestionRows:
    """Read a split that the stage has written."""
    return read_rows(folder, split, QuestionRows)
