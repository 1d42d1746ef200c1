"""Queries with candidates for re-ranking: the first BM25 results from a collection, or those of a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from bertline.demo.docstrings import ModuleDocs
from bertline.foundation.errors import DataError
from bertline.kinds.reranking.config import RerankingTaskConfig
from bertline.tasks.bad_rows import BadRows
from bertline.tasks.bm25 import Bm25
from bertline.tasks.decoded_files import OptionNames
from bertline.tasks.metrics.ranking import num_relevant
from bertline.tasks.search_data import search_splits
from bertline.tasks.search_files import one_line, relevance_of
from bertline.tasks.source_config import AnswersSourceConfig
from bertline.tasks.source_files import complete_splits, fewest_train_rows, same_text, shortened, split_files
from bertline.tasks.stored_rows import BuiltTask, CandidateRows, Documents, QueryRows, read_rows
from bertline.tasks.table_source import Record, TableLayout, read_records


def built_task(name: str, config: RerankingTaskConfig, modules: Iterable[ModuleDocs] = ()) -> BuiltTask:
    """Read the queries and their candidates, with the scores of the first stage (BM25).

    Raises:
        DataError: The data is invalid. The message names file and line, the problem and how to fix it.
    """
    if isinstance(config.source, AnswersSourceConfig):
        return _answers_task(name, config, config.source)
    source = search_splits(name, config, config.source, modules)
    assert source.collection is not None  # a search has one
    texts = source.collection.texts_read()
    bm25 = Bm25(texts)
    splits = {
        split: _candidates_of(rows, source.collection, texts, bm25, config.num_candidates, adds_missed=split == "train")
        for split, rows in source.splits.items()
    }
    _check_candidates(name, config, splits["train"], "Raise num_candidates, or check the judgements.")
    return BuiltTask(splits={**splits}, dropped=source.dropped, more={**source.more, "num_documents": len(texts)})


def _candidates_of(
    queries: QueryRows, documents: Documents, texts: Sequence[str], bm25: Bm25, k: int, *, adds_missed: bool
) -> CandidateRows:
    """Return the first k BM25 results of each query. `adds_missed` appends the relevant documents that BM25 missed."""
    numbers = {identity: number for number, identity in enumerate(documents.ids)}
    rows = []
    for identity, query, judged_ids, relevances in zip(
        queries.ids, queries.queries, queries.document_ids, queries.relevances, strict=True
    ):
        judged = dict(zip(judged_ids, relevances, strict=True))
        scores = bm25.scores(query)
        chosen = bm25.best(query, k)[0].tolist()
        if adds_missed:
            relevant = [numbers[each] for each, value in judged.items() if value > 0 and each in numbers]
            chosen += sorted(set(relevant) - set(chosen))
        ids = [documents.ids[number] for number in chosen]
        first_scores = [float(scores[number]) for number in chosen]
        of_ids = [judged.get(each, 0) for each in ids]
        rows.append(
            (identity, query, ids, [texts[number] for number in chosen], of_ids, first_scores, [*judged.values()])
        )
    return replace(CandidateRows.of(rows), clusters=queries.clusters)


def _answers_task(name: str, config: RerankingTaskConfig, source: AnswersSourceConfig) -> BuiltTask:
    bad_rows = BadRows(source.on_bad_row)
    read = {split: read_answers(file, source, bad_rows) for split, file in split_files(source).items()}
    dropped = Counter(bad_rows.dropped)
    splits = {split: _answerable(each, dropped) for split, each in read.items()}
    dropped += complete_splits(splits, config, same=lambda row: same_text([row.text]), name="question")
    splits = shortened(splits, config, dropped)
    if not any(splits.values()):
        raise DataError(f"tasks.{name}: no question has a right answer (a label above 0 in {source.label_column!r}).")
    # Document frequencies come from the candidates of all splits; labels are not used.
    texts = sorted({answer.text for questions in read.values() for each in questions for answer in each.answers})
    bm25 = Bm25(texts)
    numbers = {text: number for number, text in enumerate(texts)}
    always_right = {
        split: sum(num_relevant(each.relevances) == len(each.answers) for each in questions)
        for split, questions in splits.items()
    }
    rows = {split: _rows_of(questions, bm25, numbers) for split, questions in splits.items()}
    fix = f"Check {source.label_column!r} (source.label_column), or add others."
    _check_candidates(name, config, rows["train"], fix)
    return BuiltTask(splits={**rows}, dropped=dropped, more={"questions_with_right_answers_only": always_right})


def _check_candidates(name: str, config: RerankingTaskConfig, train: CandidateRows, fix: str) -> None:
    """Check that the smallest requested training set has both relevant and irrelevant candidates."""
    num_queries = fewest_train_rows(config, len(train))
    is_right = [value > 0 for values in train.relevances[:num_queries] for value in values]
    if len(set(is_right)) == 1:
        raise DataError(
            f"tasks.{name}: all {len(is_right)} candidates of the {num_queries} train queries are "
            f"{'right' if is_right[0] else 'wrong'}; there is no order to learn. {fix}"
        )


def _answerable(questions: list[Question], dropped: Counter[str]) -> list[Question]:
    """Return the questions with a right answer. For others no order is better than another; trec_eval skips them
    too."""
    answerable = [question for question in questions if num_relevant(question.relevances)]
    dropped["question_without_right_answer"] += len(questions) - len(answerable)
    return answerable


def _rows_of(questions: list[Question], bm25: Bm25, numbers: dict[str, int]) -> CandidateRows:
    rows = []
    for question in questions:
        ids, texts, relevances = zip(*question.answers, strict=True)
        scores = bm25.scores(question.text)[np.array([numbers[text] for text in texts])].tolist()
        rows.append((question.id, question.text, list(ids), list(texts), list(relevances), scores, list(relevances)))
    return CandidateRows.of(rows)


stored_rows = partial(read_rows, rows_class=CandidateRows)
"""Reads a split that the stage has written."""


_OPTIONS = OptionNames(encoding="source.encoding", quoting="source.quoting")


class Answer(NamedTuple):
    """A candidate answer."""

    id: str
    """File and first line of the row, such as `train.csv:17`."""
    text: str
    relevance: int


@dataclass(frozen=True, slots=True)
class Question:
    """A question with all its candidates, in file order."""

    id: str
    """Id of its first candidate."""
    text: str
    answers: list[Answer]

    @property
    def relevances(self) -> list[int]:
        """Relevance of each candidate."""
        return [answer.relevance for answer in self.answers]


def read_answers(path: Path, config: AnswersSourceConfig, bad_rows: BadRows) -> list[Question]:
    """Read the questions of a `.csv` or `.tsv` file with a header, in the order of their first row.

    With `quoting`, quoted fields may contain separators and line breaks. A field that begins with two backquotes or has
    quotes only in its middle is plain text.

    Raises:
        DataError: A column is missing or named twice, quotes are unbalanced, the encoding is wrong, or a row is invalid
            and invalid rows are errors. The message names the file and line.
    """
    questions: dict[str, Question] = {}
    for row in _rows(path, config, bad_rows):
        where, fields = f"{path}:{row.line}", row.values
        query, text = one_line(fields[config.query_column]), one_line(fields[config.text_column])
        relevance = relevance_of(fields[config.label_column])
        if not query or not text:
            column = config.text_column if query else config.query_column
            bad_rows.report("empty_text", f"{where}: the text in column {column!r} is empty.")
        elif relevance is None:
            cell = fields[config.label_column]
            bad_rows.report("bad_label", f"{where}: the label is {cell!r}; expected 0, 1 or another whole number.")
        else:
            answer = Answer(row.where, text, relevance)
            questions.setdefault(query, Question(answer.id, query, [])).answers.append(answer)
    if not questions:
        raise DataError(f"{path} has no rows that can be used.")
    return list(questions.values())


def _rows(path: Path, config: AnswersSourceConfig, bad_rows: BadRows) -> Iterator[Record]:
    kind: Literal["csv", "tsv"] = "tsv" if ".tsv" in path.suffixes else "csv"
    layout = TableLayout(kind, header=True, quoting=config.quoting, encoding=config.encoding, options=_OPTIONS)
    for row in read_records(path, layout, bad_rows):
        _check_columns(path, row, config)
        yield row


def _check_columns(path: Path, row: Record, config: AnswersSourceConfig) -> None:
    for option in ("query_column", "text_column", "label_column"):
        if getattr(config, option) not in row.values:
            raise DataError(
                f"{path} has no column {getattr(config, option)!r} (source.{option}). It has "
                f"{', '.join(map(str, row.values))}."
            )
