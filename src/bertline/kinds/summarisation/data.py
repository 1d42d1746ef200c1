"""Train, dev and test splits of a summarisation task, with the target sentences for training."""

from __future__ import annotations

from pathlib import Path

from bertline.kinds.summarisation.config import SummarisationTaskConfig
from bertline.tasks.built import BuiltTask
from bertline.tasks.source_files import read_splits, same_text
from bertline.tasks.storage import SplitName, read_rows
from bertline.tasks.stored_rows import SummaryRows
from bertline.tasks.summaries import Summary, chosen_sentences, read_summaries


def built_task(name: str, config: SummarisationTaskConfig) -> BuiltTask:
    """Read the files, cut missing splits from train, shuffle train, and select the target sentences.

    A hash of its document assigns a row to a split, so equal documents stay together. A train document that also occurs
    in dev or test, or a dev document that also occurs in test, is dropped and counted.

    Raises:
        DataError: The data is invalid. The message names file and line, the problem and how to fix it.
    """
    source = config.source
    splits, dropped = read_splits(
        source, config, lambda file, bad_rows: read_summaries(file, source, bad_rows), same=_document, name="document"
    )
    stored = {split: _stored(splits[split], config.num_sentences) for split in ("train", "dev", "test")}
    return BuiltTask(
        splits={**stored},
        labels=(),
        dropped=dropped,
        more={
            "num_sentences": {split: sum(map(len, rows.sentences)) for split, rows in stored.items()},
            "without_chosen_sentence": {
                split: sum(not any(chosen) for chosen in rows.chosen) for split, rows in stored.items()
            },
        },
    )


def _document(row: Summary) -> str:
    return same_text([" ".join(row.sentences)])


def _stored(rows: list[Summary], num_sentences: int) -> SummaryRows:
    return SummaryRows(
        ids=[row.id for row in rows],
        sentences=[row.sentences for row in rows],
        summaries=[row.summary for row in rows],
        chosen=[chosen_sentences(row.sentences, row.summary, most=num_sentences) for row in rows],
    )


def stored_rows(folder: Path, split: SplitName) -> SummaryRows:
    """Read a split that the stage has written."""
    return read_rows(folder, split, SummaryRows)
