"""Sentences with a tag for every word, from CoNLL-U files."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

from bertline.foundation.errors import DataError
from bertline.foundation.labels import ordered_labels
from bertline.foundation.progress import warn
from bertline.kinds.tagging.config import ConlluSourceConfig, TaggingTaskConfig
from bertline.tasks.bad_rows import BadRow, BadRows
from bertline.tasks.conll import TaggedSentence, tagged_rows, tagged_splits
from bertline.tasks.decoded_files import NO_OPTIONS, decoded_text
from bertline.tasks.stored_rows import BuiltTask, TaggedRows, read_rows

_NUM_COLUMNS = 10
_ID, _FORM = 0, 1
_TAGS = {"upos": 3, "xpos": 4}
_MISSING = "_"


def built_task(name: str, config: TaggingTaskConfig) -> BuiltTask:
    """Read the files, cut missing splits from train by document, and shuffle train.

    Labels are all tags found, also a tag that occurs only in dev or test, with a warning: it cannot be learned. A train
    sentence whose words also occur in dev or test, or a dev sentence whose words also occur in test, is dropped and
    counted.

    Raises:
        DataError: The data is invalid. The message names file and line, the problem and how to fix it.
    """
    source = config.source
    splits, dropped = tagged_splits(
        source, config, lambda file, bad_rows: read_conllu(file, source, bad_rows), lambda sentence: sentence.tags
    )
    counts = {split: Counter(tag for row in rows for tag in row.tags) for split, rows in splits.items()}
    for split in ("dev", "test"):
        if unknown := sorted(set(counts[split]) - set(counts["train"])):
            warn(
                f"tasks.{name}: {split} has words tagged {', '.join(unknown)}, train has none; they can only be missed"
            )
    return BuiltTask(
        splits={split: tagged_rows(rows) for split, rows in splits.items()},
        labels=ordered_labels(tag for found in counts.values() for tag in found),
        dropped=dropped,
        targets={split: {(tag,) for tag in found} for split, found in counts.items()},
        more={"words_by_split": {split: found.total() for split, found in counts.items()}},
    )


stored_rows = partial(read_rows, rows_class=TaggedRows)
"""Reads a split that the stage has written."""


def read_conllu(path: Path, source: ConlluSourceConfig, bad_rows: BadRows) -> list[TaggedSentence]:
    """Read the sentences of a CoNLL-U file, plain or gzip.

    Multiword tokens (`1-2`) and empty nodes (`8.1`) are not words and are skipped. A comment `# newdoc` starts a
    document.

    Raises:
        DataError: The file cannot be decoded or has no valid sentence, or a row is invalid and invalid rows are errors.
            The message names the file and, where there is one, the line.
    """
    sentences: list[TaggedSentence] = []
    document: str | None = None
    lines: list[tuple[int, str]] = []
    for number, line in enumerate([*decoded_text(path, "utf-8", NO_OPTIONS).split("\n"), ""], start=1):
        line = line.removesuffix("\r")
        if line.startswith("#"):
            document = f"{path.name}:{number}" if line.startswith("# newdoc") else document
        elif line.strip():
            lines.append((number, line))
        elif lines:
            try:
                words, tags = _words_and_tags(path, lines, source)
            except BadRow as bad:
                bad_rows.found(bad)
            else:
                begin = f"{path.name}:{lines[0][0]}"
                sentences.append(TaggedSentence(begin, document or begin, words, tags))
            lines = []
    if not sentences:
        raise DataError(
            f"{path} has no sentence that can be used. Give a CoNLL-U file: ten columns, separated by tabs."
        )
    return sentences


def _words_and_tags(
    path: Path, lines: list[tuple[int, str]], source: ConlluSourceConfig
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    found = []
    for number, line in lines:
        columns = line.split("\t")
        if len(columns) != _NUM_COLUMNS:
            raise BadRow(
                "wrong_number_of_columns",
                f"{path}:{number} has {len(columns)} columns separated by tabs, CoNLL-U has ten: {line[:60]!r}.",
            )
        if not columns[_ID].isdecimal():
            continue
        word, tag = columns[_FORM].strip(), columns[_TAGS[source.tags]].strip()
        if not word or tag in ("", _MISSING):
            missing = f"no tag in its column {source.tags}" if word else "no word"
            raise BadRow("missing_tag" if word else "missing_word", f"{path}:{number} has {missing}: {line[:60]!r}.")
        found.append((word, tag))
    if not found:
        raise BadRow("sentence_without_words", f"{path}:{lines[0][0]}: the sentence has no word.")
    words, tags = zip(*found, strict=True)
    return words, tags
