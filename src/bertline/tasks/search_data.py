"""Collections with queries and relevance judgements, from any source, as splits of a retrieval task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, assert_never

from bertline.demo.config import DocsSearchSourceConfig
from bertline.demo.docs_search import docs_search_splits
from bertline.demo.docstrings import ModuleDocs
from bertline.foundation.errors import DataError
from bertline.foundation.seeds import seed_for
from bertline.tasks.bad_rows import BadRow, BadRows
from bertline.tasks.beir import beir_documents, beir_judgements, beir_queries
from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.search_files import Judgement, RawDocument, RawQuery
from bertline.tasks.smart import smart_documents, smart_judgements, smart_queries
from bertline.tasks.source_config import BeirSourceConfig, SmartSourceConfig, TrecSourceConfig
from bertline.tasks.source_files import capped, cut_by_key, num_rows_made, same_text, trains_nothing
from bertline.tasks.stored_rows import Documents, QueryRows, SearchSplits, SplitName
from bertline.tasks.trec_collection import trec_documents, trec_judgements, trec_queries

_FilesSource = BeirSourceConfig | SmartSourceConfig | TrecSourceConfig
CollectionSource = DocsSearchSourceConfig | _FilesSource
_Judged = dict[str, dict[str, int]]
"""Relevance by query id, then document id."""


def search_splits(
    name: str, config: BaseTaskConfig, source: CollectionSource, modules: Iterable[ModuleDocs]
) -> SearchSplits:
    """Return the collection of a source, with its queries split into train, dev and test.

    Only queries with a relevant document are kept. Queries of missing splits are chosen by a hash of their ids. A train
    query that also occurs in dev or test, or a dev query that also occurs in test, by id or by words, is dropped. If
    nothing is trained (`fine_tuning: {num_epochs: 0}`) and no query is left for dev, dev repeats the test queries,
    limited to `max_dev_rows`.
    """
    if isinstance(source, DocsSearchSourceConfig):
        made = docs_search_splits(modules, source, num_train_rows=num_rows_made(config), seed=config.split_seed)
        rows = {split: _capped(each, split, config, made.dropped) for split, each in made.splits.items()}
        return replace(made, splits=rows)
    bad_rows = BadRows(source.on_bad_row)
    documents, known = _documents(_raw_documents(source, bad_rows), bad_rows)
    queries = _queries(_raw_queries(source, bad_rows), bad_rows)
    judgements = {
        split: _judged(found, queries, known, bad_rows)
        for split, found in _raw_judgements(source, queries, known, bad_rows).items()
    }
    dropped = Counter(bad_rows.dropped)
    relevant = {split: _with_relevant(name, split, judged, dropped) for split, judged in judgements.items()}
    dropped["query_without_judgements"] += len(queries) - len({query for each in judgements.values() for query in each})
    chosen = _chosen_queries(relevant, queries, config, dropped)
    # A split that was cut uses the judgements of the split it was cut from.
    source_of_cuts = relevant.get("train", relevant["test"])
    rows = {
        split: _rows(capped(ids, str, split, config, dropped), queries, relevant.get(split, source_of_cuts))
        for split, ids in chosen.items()
    }
    more: dict[str, Any] = {}
    if not len(rows["dev"]) and trains_nothing(config):
        rows["dev"], more["dev_is_test"] = _capped(rows["test"], "dev", config, dropped), True
    return SearchSplits(documents=documents, splits={**rows}, dropped=dropped, more=more)


def _capped(rows: QueryRows, split: SplitName, config: BaseTaskConfig, dropped: Counter[str]) -> QueryRows:
    return rows.take(capped(range(len(rows)), lambda place: rows.ids[place], split, config, dropped))


def _raw_documents(source: _FilesSource, bad_rows: BadRows) -> Iterator[RawDocument]:
    match source:
        case BeirSourceConfig():
            return beir_documents(source.path, bad_rows)
        case SmartSourceConfig():
            return smart_documents(source.path, source.documents_file, bad_rows)
        case TrecSourceConfig():
            return trec_documents(source.path, source.documents_file, bad_rows)
        case _:
            assert_never(source)


def _raw_queries(source: _FilesSource, bad_rows: BadRows) -> Iterator[RawQuery]:
    match source:
        case BeirSourceConfig():
            return beir_queries(source.path, bad_rows)
        case SmartSourceConfig():
            return smart_queries(source.path, source.queries_file, bad_rows)
        case TrecSourceConfig():
            return trec_queries(source.path, source.queries_file, source.query_ids, bad_rows)
        case _:
            assert_never(source)


def _raw_judgements(
    source: _FilesSource, queries: Mapping[str, str], documents: frozenset[str], bad_rows: BadRows
) -> dict[SplitName, Iterator[Judgement]]:
    match source:
        case BeirSourceConfig():
            files = {"train": source.train_qrels, "dev": source.dev_qrels, "test": source.test_qrels}
            return {
                split: beir_judgements(source.path, name, bad_rows, queries=queries, documents=documents)
                for split, name in files.items()
                if name is not None
            }
        case SmartSourceConfig():
            return {"test": smart_judgements(source.path, source.judgements_file, bad_rows)}
        case TrecSourceConfig():
            return {"test": trec_judgements(source.path, source.judgements_file, bad_rows)}
        case _:
            assert_never(source)


def _documents(found: Iterable[RawDocument], bad_rows: BadRows) -> tuple[Documents, frozenset[str]]:
    """Return the non-empty documents, and the ids of all: judgements may name empty documents, which are not
    indexed."""
    places: dict[str, str] = {}
    kept: list[RawDocument] = []
    for document in found:
        if document.id in places:
            first = places[document.id]
            bad_rows.found(
                BadRow(
                    "repeated_document", f"{document.where}: the document {document.id!r} stands at {first} already."
                )
            )
            continue
        places[document.id] = document.where
        if document.title or document.text:
            kept.append(document)
        else:
            bad_rows.found(BadRow("empty_document", f"{document.where}: the document {document.id!r} has no text."))
    if not kept:
        raise DataError("The collection has no document with a text. Check the files that the task's source names.")
    documents = Documents([each.id for each in kept], [each.title for each in kept], [each.text for each in kept])
    return documents, frozenset(places)


def _queries(found: Iterable[RawQuery], bad_rows: BadRows) -> dict[str, str]:
    queries: dict[str, str] = {}
    places: dict[str, str] = {}
    for query in found:
        if query.id in places:
            first = places[query.id]
            bad_rows.found(
                BadRow("repeated_query", f"{query.where}: the query {query.id!r} stands at {first} already.")
            )
            continue
        places[query.id] = query.where
        if not query.text:
            bad_rows.found(BadRow("empty_query", f"{query.where}: the query {query.id!r} has no text."))
            continue
        queries[query.id] = query.text
    return queries


def _judged(
    found: Iterable[Judgement], queries: Mapping[str, str], documents: frozenset[str], bad_rows: BadRows
) -> _Judged:
    judged: _Judged = {}
    for judgement in found:
        where, query, document = judgement.where, judgement.query, judgement.document
        if query not in queries:
            hint = " Does source.query_ids say rightly how queries are named?"
            bad_rows.found(
                BadRow("judgement_of_unknown_query", f"{where} names the query {query!r}, which is not there.{hint}")
            )
        elif document not in documents:
            bad_rows.found(
                BadRow("judgement_of_unknown_document", f"{where} names the document {document!r}, which is not there.")
            )
        elif judged.setdefault(query, {}).setdefault(document, judgement.relevance) != judgement.relevance:
            message = (
                f"{where} gives the document {document!r} the relevance {judgement.relevance}; "
                f"an earlier line gave it {judged[query][document]}."
            )
            bad_rows.found(BadRow("contradicting_judgement", message))
    return judged


def _with_relevant(name: str, split: SplitName, judged: _Judged, dropped: Counter[str]) -> _Judged:
    kept = {query: of_query for query, of_query in judged.items() if max(of_query.values()) > 0}
    dropped["query_without_relevant_document"] += len(judged) - len(kept)
    if not kept:
        raise DataError(f"tasks.{name}: no query of the {split} judgements has a relevant document (above 0).")
    return kept


def _chosen_queries(
    relevant: Mapping[SplitName, _Judged], queries: Mapping[str, str], config: BaseTaskConfig, dropped: Counter[str]
) -> dict[SplitName, list[str]]:
    seed = config.split_seed
    test, train = list(relevant["test"]), list(relevant.get("train", ()))
    if "train" not in relevant:
        test, train = cut_by_key(test, str, "test", config.test_fraction, seed)
    dev = list(relevant.get("dev", ()))
    if "dev" not in relevant:
        dev, train = cut_by_key(train, str, "dev", config.dev_fraction, seed)
    dev = _unseen(dev, test, queries, "dev_query_also_in_test", dropped)
    train = _unseen(train, [*dev, *test], queries, "train_query_also_in_dev_or_test", dropped)
    train.sort(key=lambda query: (seed_for(seed, "order", query), query))
    return {"train": train[: num_rows_made(config)], "dev": dev, "test": test}


def _unseen(
    ids: list[str], others: list[str], queries: Mapping[str, str], reason: str, dropped: Counter[str]
) -> list[str]:
    """Return the queries that equal none of the others, by id or by text."""
    taken = set(others)
    texts = {same_text([queries[query]]) for query in others}
    kept = [query for query in ids if query not in taken and same_text([queries[query]]) not in texts]
    dropped[reason] += len(ids) - len(kept)
    return kept


def _rows(ids: list[str], queries: Mapping[str, str], judged: _Judged) -> QueryRows:
    return QueryRows(
        ids,
        [queries[query] for query in ids],
        [list(judged[query]) for query in ids],
        [list(judged[query].values()) for query in ids],
    )
