"""Train, dev and test splits of a summarisation task, and the sentences that a summary is best made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bertline.corpus.sentences import split_sentences
from bertline.kinds.summarisation.config import SummarisationTaskConfig
from bertline.tasks.bad_rows import BadRow, BadRows
from bertline.tasks.metrics.rouge import ngrams, overlap_f1, words_of
from bertline.tasks.source_config import SummariesSourceConfig
from bertline.tasks.source_files import read_splits, same_text
from bertline.tasks.stored_rows import BuiltTask, SummaryRows, read_rows
from bertline.tasks.table_source import JSON_LINES, Record, parsed_records, value_in


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
    stored = {
        split: SummaryRows.of(
            (*row, chosen_sentences(row.sentences, row.summary, most=config.num_sentences)) for row in rows
        )
        for split, rows in splits.items()
    }
    return BuiltTask(
        splits={**stored},
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


stored_rows = partial(read_rows, rows_class=SummaryRows)
"""Reads a split that the stage has written."""


class Summary(NamedTuple):
    """A document with its summary."""

    id: str
    sentences: list[str]
    summary: str


def read_summaries(path: Path, config: SummariesSourceConfig, bad_rows: BadRows) -> list[Summary]:
    """Read documents as lists of sentences; a document given as text is split at line ends and into sentences.

    Raises:
        DataError: The file cannot be read, or a row is invalid and invalid rows are errors. The message names the file
            and, where there is one, the line.
    """

    def parse(record: Record) -> Summary:
        sentences = _sentences(record, config.document_column)
        return Summary(record.where, sentences, _summary(record, config.summary_column))

    return parsed_records(path, JSON_LINES, bad_rows, parse)


def _sentences(record: Record, column: str) -> list[str]:
    value = value_in(record, column)
    if isinstance(value, str):
        sentences = [sentence for line in value.splitlines() for sentence in split_sentences(line)]
    elif isinstance(value, list) and all(isinstance(each, str) for each in value):
        sentences = [each.strip() for each in value if each.strip()]
    else:
        raise BadRow("wrong_type", f"{column!r} is neither a text nor a list of sentences")
    if not sentences:
        raise BadRow("empty_document", f"the document in {column!r} is empty")
    return sentences


def _summary(record: Record, column: str) -> str:
    value = value_in(record, column)
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(each, str) for each in parts):
        raise BadRow("wrong_type", f"{column!r} is neither a text nor a list of sentences")
    summary = " ".join(part.strip() for part in parts).strip()
    if not summary:
        raise BadRow("empty_summary", f"the summary in {column!r} is empty")
    if not words_of(summary):
        raise BadRow(
            "summary_without_words",
            f"the summary in {column!r} has none of the letters a to z and no digits, which are all that ROUGE counts",
        )
    return summary


def chosen_sentences(sentences: Sequence[str], summary: str, *, most: int) -> list[int]:
    """Select target sentences greedily: add the sentence that increases ROUGE-1 plus ROUGE-2 F1 most.

    Bigrams do not cross sentence boundaries. Ties take the first sentence. Selection stops when no sentence increases
    the score, so there may be fewer than `most` sentences, and none if the document shares no words with the summary.

    Returns:
        1 for each selected sentence, else 0.

    References:
        Liu and Lapata 2019, arXiv 1908.08345, section 4.2, after Nallapati et al. 2017, arXiv 1611.04230.

    Example:
        >>> chosen_sentences(["It rained.", "The cat sat.", "The cat sat down."], "The cat sat.", most=2)
        [0, 1, 0]
    """
    right = [ngrams(words_of(summary), n) for n in (1, 2)]
    of_sentence = [[ngrams(words_of(sentence), n) for n in (1, 2)] for sentence in sentences]
    so_far = [Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()]
    chosen = [0] * len(sentences)
    best = 0.0
    for _ in range(most):
        gained = None
        for place, counts in enumerate(of_sentence):
            if chosen[place]:
                continue
            score = sum(overlap_f1(old + new, gold) for old, new, gold in zip(so_far, counts, right, strict=True))
            if score > best:
                best, gained = score, place
        if gained is None:
            break
        chosen[gained] = 1
        so_far = [old + new for old, new in zip(so_far, of_sentence[gained], strict=True)]
    return chosen
