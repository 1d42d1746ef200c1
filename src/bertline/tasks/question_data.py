"""Questions of any SQuAD file as train, dev and test that share no article."""

from __future__ import annotations

from bertline.foundation.seeds import seed_for
from bertline.tasks.bad_rows import BadRows
from bertline.tasks.built import BuiltTask
from bertline.tasks.config import QuestionAnsweringTaskConfig
from bertline.tasks.source_files import cut_by_key, drop_repeated, same_text, split_files
from bertline.tasks.squad import Question, read_squad
from bertline.tasks.storage import SplitName
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
    splits: dict[SplitName, list[Question]] = {
        split: read_squad(file, bad_rows, may_move=source.on_bad_row == "skip")
        for split, file in split_files(source.path, source.train_file, source.dev_file, source.test_file).items()
    }
    for split, fraction in (("test", config.test_fraction), ("dev", config.dev_fraction)):
        if split not in splits:
            splits[split], splits["train"] = cut_by_key(
                splits["train"], lambda row: row.title, split, fraction, config.split_seed
            )
    dropped = bad_rows.dropped + drop_repeated(splits, lambda row: same_text([row.context]), "context")
    splits["train"].sort(key=lambda row: (seed_for(config.split_seed, "order", row.id), row.id))
    if config.num_train_rows is not None:
        splits["train"] = splits["train"][: max(config.num_train_rows, *config.label_efficiency_rows, 0)]
    return BuiltTask(
        splits={split: _stored(splits[split]) for split in ("train", "dev", "test")},
        labels=(),
        dropped=dropped,
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
