"""Splits of sentences with a tag for every word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from bertline.tasks.bad_rows import BadRows
from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.conll import TaggedSentence
from bertline.tasks.source_files import SplitSource, read_splits, same_text
from bertline.tasks.storage import SplitName
from bertline.tasks.stored_rows import TaggedRows


def tagged_splits(
    source: SplitSource, config: BaseTaskConfig, read: Callable[[Path, BadRows], list[TaggedSentence]]
) -> tuple[dict[SplitName, list[TaggedSentence]], Counter[str]]:
    """Read the splits of the files, cut missing splits from train by document, and shuffle train.

    A hash of its name assigns a document to a split. If documents are not marked, a hash of its words assigns each
    sentence, so that equal sentences stay together. A train sentence whose words also occur in dev or test, or a dev
    sentence whose words also occur in test, is dropped and counted.
    """
    return read_splits(
        source,
        config,
        read,
        same=_words,
        name="sentence",
        kept_together=lambda sentence: sentence.document if sentence.document != sentence.id else _words(sentence),
    )


def tagged_rows(sentences: Sequence[TaggedSentence]) -> TaggedRows:
    """Return sentences as rows to store."""
    return TaggedRows(
        [sentence.id for sentence in sentences],
        [sentence.document for sentence in sentences],
        [list(sentence.words) for sentence in sentences],
        [list(sentence.tags) for sentence in sentences],
    )


def _words(sentence: TaggedSentence) -> str:
    return same_text([" ".join(sentence.words)])
