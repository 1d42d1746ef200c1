"""Train, dev and test splits of a token classification task, from any source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import assert_never

from bertline.demo.config import DocsParametersSourceConfig
from bertline.demo.docstrings import ModuleDocs
from bertline.demo.tasks import docs_parameters_sentences
from bertline.foundation.errors import DataError
from bertline.foundation.progress import warn
from bertline.kinds.token_classification.config import TokenClassificationTaskConfig
from bertline.tasks.conll import TaggedSentence, read_conll, tagged_rows, tagged_splits
from bertline.tasks.metrics.entities import entities
from bertline.tasks.source_config import ConllSourceConfig
from bertline.tasks.source_files import num_rows_made, shortened
from bertline.tasks.stored_rows import BuiltTask, SplitName, TaggedRows, read_rows
from bertline.tasks.tags import iob2_labels, types_of

Splits = dict[SplitName, list[TaggedSentence]]


def built_task(name: str, config: TokenClassificationTaskConfig, modules: Iterable[ModuleDocs] = ()) -> BuiltTask:
    """Read and split the sentences. Labels are O and, for each type in alphabetical order, B- and I-.

    The types are those listed by the source, or all types found. A type that occurs only in dev or test is also a
    label, with a warning: it cannot be learned, and its entities count as missed, as in the official scores.

    Raises:
        DataError: The data is invalid. The message names file and line, the problem and how to fix it.
    """
    dropped: Counter[str] = Counter()
    splits: Splits
    match config.source:
        case ConllSourceConfig():
            source = config.source
            splits, dropped = tagged_splits(
                source,
                config,
                lambda file, bad_rows: read_conll(file, source, bad_rows),
                lambda sentence: types_of(sentence.tags),
            )
            types = source.types
        case DocsParametersSourceConfig():
            splits = docs_parameters_sentences(
                modules, config.source, num_train_rows=num_rows_made(config), seed=config.split_seed, dropped=dropped
            )
            splits = shortened(splits, config, dropped)
            types = None
        case _:
            assert_never(config.source)
    _check_types(name, splits)
    return BuiltTask(
        splits={split: tagged_rows(rows) for split, rows in splits.items()},
        labels=iob2_labels(types or {kind for found in splits.values() for kind in _types(found)}),
        dropped=dropped,
        # Words outside of entities are a target, too.
        targets={split: {(), *((kind,) for kind in _types(found))} for split, found in splits.items() if found},
        more={
            "entities_by_split": {split: _entity_counts(sentences) for split, sentences in splits.items()},
            "words_by_split": {split: sum(len(s.words) for s in sentences) for split, sentences in splits.items()},
        },
    )


def _check_types(name: str, splits: Splits) -> None:
    known = _types(splits["train"])
    if not known and splits["train"]:
        raise DataError(
            f"tasks.{name}: all words of the {len(splits['train'])} train rows are tagged O: nothing to learn. "
            "Check source.tag_column, or add rows with entities."
        )
    for split in ("dev", "test"):
        unknown = sorted(_types(splits[split]) - known)
        if unknown:
            warn(
                f"tasks.{name}: {split} has entities of {', '.join(map(repr, unknown))}, train has none; they can only "
                "be missed. Is a type spelt otherwise in train?"
            )


def _types(sentences: list[TaggedSentence]) -> set[str]:
    return set(types_of({tag for sentence in sentences for tag in sentence.tags}))


def _entity_counts(sentences: list[TaggedSentence]) -> dict[str, int]:
    counts = Counter(kind for sentence in sentences for kind, _, _ in entities(sentence.tags))
    return dict(sorted(counts.items()))


stored_rows = partial(read_rows, rows_class=TaggedRows)
"""Reads a split that the stage has written."""
