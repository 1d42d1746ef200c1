"""Questions of any SQuAD file as train, dev and test that share no article."""

from __future__ import annotations

from bertline.tasks.bad_rows import BadRows
from bertline.tasks.built import BuiltTask
from bertline.tasks.config import QuestionAnsweringTaskConfig
from bertline.tasks.source_files import read_splits, same_text
from bertline.tasks.squad import Question, read_squad
from bertline.tasks.stored_rows import QuestionRows


def question_task(config: QuestionAnsweringTaskConfig) -> BuiltTask:
    """Read the files, cut the splits that they lack from train by article, and put train into a random order.

    A question on a context that also stands in a split closer to the test is left out and counted, so that no context
    is ever scored after it was learnt.

    Raises:
        DataError: Naming file, article and question, what was found and how to mend it.
    """
    source = config.source
    bad_rows = BadRows(source.on_bad_row)
    splits, repeated = read_splits(
        source,
        config,
        lambda file: read_squad(file, bad_rows, may_move=source.on_bad_row == "skip"),
        kept_together=lambda row: row.title,
        same=lambda row: same_text([row.context]),
        name="context",
    )
    return BuiltTask(
        splits={split: _stored(splits[split]) for split in ("train", "dev", "test")},
        labels=(),
        dropped=bad_rows.dropped + repeated,
        versions={},
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
