"""Reader of documents and summaries from JSONL, and the selection of target sentences for training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertline.corpus.sentences import split_sentences
from bertline.tasks.bad_rows import BadRow, BadRows
from bertline.tasks.metrics.rouge import ngrams, overlap_f1, words_of
from bertline.tasks.source_config import SummariesSourceConfig
from bertline.tasks.table_files import Record, TableLayout, read_records


@dataclass(frozen=True, slots=True)
class Summary:
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
    layout = TableLayout(format="jsonl", header=True, quoting=True, encoding="utf-8-sig")
    found: list[Summary] = []
    for record in read_records(path, layout, bad_rows):
        try:
            sentences = _sentences(_cell(record, config.document_column), config.document_column)
            summary = _summary(_cell(record, config.summary_column), config.summary_column)
        except BadRow as bad:
            place = f"{path}:{record.where.rpartition(':')[2]}"
            bad_rows.found(BadRow(bad.reason, f"{place}: {bad}. Fix or remove the row."))
            continue
        found.append(Summary(record.where, sentences, summary))
    return found


def _cell(record: Record, column: str) -> Any:
    if column not in record.values:
        existing = ", ".join(repr(name) for name in record.values) or "none"
        raise BadRow("missing_column", f"there is no column {column!r}; the columns are {existing}")
    return record.values[column]


def _sentences(value: Any, column: str) -> list[str]:
    if isinstance(value, str):
        sentences = [sentence for line in value.splitlines() for sentence in split_sentences(line)]
    elif isinstance(value, list) and all(isinstance(each, str) for each in value):
        sentences = [each.strip() for each in value if each.strip()]
    else:
        raise BadRow("wrong_type", f"{column!r} is neither a text nor a list of sentences")
    if not sentences:
        raise BadRow("empty_document", f"the document in {column!r} is empty")
    return sentences


def _summary(value: Any, column: str) -> str:
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
