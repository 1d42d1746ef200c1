"""Queries with candidates for re-ranking: the first BM25 results from a collection, or those of a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from bertline.demo.docstrings import ModuleDocs
from bertline.foundation.errors import DataError
from bertline.foundation.seeds import seed_for
from bertline.kinds.reranking.config import RerankingTaskConfig
from bertline.tasks.answers_table import Question, read_answers
from bertline.tasks.bad_rows import BadRows
from bertline.tasks.bm25 import Bm25
from bertline.tasks.built import BuiltTask, SearchSplits
from bertline.tasks.metrics.ranking import num_relevant
from bertline.tasks.row_caps import capped
from bertline.tasks.rows import fewest_train_rows, num_rows_made
from bertline.tasks.search_data import search_splits
from bertline.tasks.source_config import AnswersSourceConfig
from bertline.tasks.source_files import cut_by_key, same_text, split_files
from bertline.tasks.storage import SplitName, read_rows
from bertline.tasks.stored_rows import CandidateRows, QueryRows


def built_task(name: str, config: RerankingTaskConfig, modules: Iterable[ModuleDocs] = ()) -> BuiltTask:
    """Read the queries and their candidates, with the scores of the first stage (BM25).

    Raises:
        DataError: The data is invalid. The message names file and line, the problem and how to fix it.
    """
    if isinstance(config.source, AnswersSourceConfig):
        return _answers_task(name, config, config.source)
    source = search_splits(name, config, config.source, modules)
    texts = source.documents.texts_read()
    bm25 = Bm25(texts)
    splits = {
        split: _candidates_of(rows, source, texts, bm25, config.num_candidates, adds_missed=split == "train")
        for split, rows in source.splits.items()
    }
    _check_candidates(name, config, splits["train"], "Raise num_candidates, or check the judgements.")
    return BuiltTask(
        splits={**splits},
        labels=(),
        dropped=source.dropped,
        more={**source.more, "num_documents": len(texts)},
    )


def _candidates_of(
    queries: QueryRows, source: SearchSplits, texts: Sequence[str], bm25: Bm25, k: int, *, adds_missed: bool
) -> CandidateRows:
    """Return the first k BM25 results of each query. `adds_missed` appends the relevant documents that BM25 missed."""
    numbers = {identity: number for number, identity in enumerate(source.documents.ids)}
    rows = CandidateRows([], [], [], [], [], [], [])
    for place, query in enumerate(queries.queries):
        judged = dict(zip(queries.document_ids[place], queries.relevances[place], strict=True))
        scores = bm25.scores(query)
        chosen = bm25.best(query, k)[0].tolist()
        if adds_missed:
            relevant = [numbers[each] for each, value in judged.items() if value > 0 and each in numbers]
            chosen += sorted(set(relevant) - set(chosen))
        ids = [source.documents.ids[number] for number in chosen]
        rows.ids.append(queries.ids[place])
        rows.queries.append(query)
        rows.candidate_ids.append(ids)
        rows.candidates.append([texts[number] for number in chosen])
        rows.relevances.append([judged.get(identity, 0) for identity in ids])
        rows.first_scores.append([float(scores[number]) for number in chosen])
        rows.all_relevances.append(list(judged.values()))
    return rows


def _answers_task(name: str, config: RerankingTaskConfig, source: AnswersSourceConfig) -> BuiltTask:
    bad_rows = BadRows(source.on_bad_row)
    files = split_files(source.path, source.train_file, source.dev_file, source.test_file)
    read = {split: read_answers(file, source, bad_rows) for split, file in files.items()}
    dropped = Counter(bad_rows.dropped)
    splits = _with_all_splits({split: _answerable(each, dropped) for split, each in read.items()}, config, dropped)
    if not any(splits.values()):
        raise DataError(f"tasks.{name}: no question has a right answer (a label above 0 in {source.label_column!r}).")
    # Document frequencies come from the candidates of all splits; labels are not used.
    texts = sorted({answer.text for questions in read.values() for each in questions for answer in each.answers})
    bm25 = Bm25(texts)
    numbers = {text: number for number, text in enumerate(texts)}
    always_right = {
        split: sum(num_relevant(relevances) == len(relevances) for relevances in _relevances(questions))
        for split, questions in splits.items()
    }
    rows = {split: _rows_of(questions, bm25, numbers) for split, questions in splits.items()}
    fix = f"Check {source.label_column!r} (source.label_column), or add others."
    _check_candidates(name, config, rows["train"], fix)
    return BuiltTask(
        splits={**rows},
        labels=(),
        dropped=dropped,
        more={"questions_with_right_answers_only": always_right},
    )


def _check_candidates(name: str, config: RerankingTaskConfig, train: CandidateRows, fix: str) -> None:
    """Check that the smallest requested training set has both relevant and irrelevant candidates."""
    num_queries = fewest_train_rows(config, len(train))
    is_right = [value > 0 for values in train.relevances[:num_queries] for value in values]
    if len(set(is_right)) == 1:
        raise DataError(
            f"tasks.{name}: all {len(is_right)} candidates of the {num_queries} train queries are "
            f"{'right' if is_right[0] else 'wrong'}; there is no order to learn. {fix}"
        )


def _relevances(questions: list[Question]) -> list[list[int]]:
    return [[answer.relevance for answer in question.answers] for question in questions]


def _answerable(questions: list[Question], dropped: Counter[str]) -> list[Question]:
    """Return the questions with a right answer. For others no order is better than another; trec_eval skips them
    too."""
    kept = [
        question
        for question, relevances in zip(questions, _relevances(questions), strict=True)
        if num_relevant(relevances)
    ]
    dropped["question_without_right_answer"] += len(questions) - len(kept)
    return kept


def _with_all_splits(
    splits: dict[SplitName, list[Question]], config: RerankingTaskConfig, dropped: Counter[str]
) -> dict[SplitName, list[Question]]:
    seed, train = config.split_seed, splits["train"]
    test, dev = splits.get("test"), splits.get("dev")
    if test is None:
        test, train = cut_by_key(train, _key, "test", config.test_fraction, seed)
    if dev is None:
        dev, train = cut_by_key(train, _key, "dev", config.dev_fraction, seed)
    dev = _unseen(dev, test, "dev_question_also_in_test", dropped)
    train = _unseen(train, [*dev, *test], "train_question_also_in_dev_or_test", dropped)
    train.sort(key=lambda question: (seed_for(seed, "order", question.id), question.id))
    chosen: dict[SplitName, list[Question]] = {"train": train[: num_rows_made(config)], "dev": dev, "test": test}
    return {split: capped(each, lambda row: row.id, split, config, dropped) for split, each in chosen.items()}


def _key(question: Question) -> str:
    return same_text([question.text])


def _unseen(questions: list[Question], others: list[Question], reason: str, dropped: Counter[str]) -> list[Question]:
    taken = {_key(question) for question in others}
    kept = [question for question in questions if _key(question) not in taken]
    dropped[reason] += len(questions) - len(kept)
    return kept


def _rows_of(questions: list[Question], bm25: Bm25, numbers: dict[str, int]) -> CandidateRows:
    first_scores = []
    for question in questions:
        scores = bm25.scores(question.text)
        first_scores.append(scores[np.array([numbers[answer.text] for answer in question.answers])].tolist())
    return CandidateRows(
        [question.id for question in questions],
        [question.text for question in questions],
        [[answer.id for answer in question.answers] for question in questions],
        [[answer.text for answer in question.answers] for question in questions],
        _relevances(questions),
        first_scores,
        _relevances(questions),
    )


def stored_rows(folder: Path, split: SplitName) -> CandidateRows:
    """Read a split that the stage has written."""
    return read_rows(folder, split, CandidateRows)
