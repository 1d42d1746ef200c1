"""Collections with queries and relevance judgements, from any source, as splits of a retrieval task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from typing import Any, assert_never

from bertline.demo.config import DocsSearchSourceConfig
from bertline.demo.docstrings import ModuleDocs
from bertline.demo.tasks import docs_search_splits
from bertline.foundation.errors import DataError
from bertline.foundation.seeds import seed_for
from bertline.tasks.bad_rows import BadRows
from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.search_files import (
    Collection,
    RawText,
    beir_collection,
    existing_file,
    numbered_lines,
    sentence_pairs_collection,
    smart_collection,
    trec_collection,
)
from bertline.tasks.source_config import (
    BeirSourceConfig,
    SentencePairsSourceConfig,
    SmartSourceConfig,
    TrecSourceConfig,
)
from bertline.tasks.source_files import capped, cut_by_key, num_rows_made, same_text, trains_nothing
from bertline.tasks.stored_rows import BuiltTask, Documents, QueryRows, SplitName

_FilesSource = BeirSourceConfig | SmartSourceConfig | TrecSourceConfig | SentencePairsSourceConfig
CollectionSource = DocsSearchSourceConfig | _FilesSource
_Judged = dict[str, dict[str, int]]
"""Relevance by query id, then document id."""


def search_splits(
    task: str, config: BaseTaskConfig, source: CollectionSource, modules: Iterable[ModuleDocs]
) -> BuiltTask[QueryRows]:
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
    collection = _collection(source, bad_rows)
    texts, known = _kept(collection.documents, "document", bad_rows)
    if not texts:
        raise DataError("The collection has no document with a text. Check the files that the task's source names.")
    documents = Documents([each.id for each in texts], [each.title for each in texts], [each.text for each in texts])
    queries = {query.id: query.text for query in _kept(collection.queries, "query", bad_rows)[0]}
    judgements = collection.judged | {
        split: _judged(collection, name, queries, known, bad_rows) for split, name in collection.judgement_files.items()
    }
    dropped = Counter(bad_rows.dropped)
    relevant = {split: _with_relevant(task, split, judged, dropped) for split, judged in judgements.items()}
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
    return BuiltTask(splits={**rows}, dropped=dropped, collection=documents, more=more)


def _capped(rows: QueryRows, split: SplitName, config: BaseTaskConfig, dropped: Counter[str]) -> QueryRows:
    return rows.take(capped(range(len(rows)), lambda place: rows.ids[place], split, config, dropped))


def _collection(source: _FilesSource, bad_rows: BadRows) -> Collection:
    match source:
        case BeirSourceConfig():
            return beir_collection(source, bad_rows)
        case SmartSourceConfig():
            return smart_collection(source, bad_rows)
        case TrecSourceConfig():
            return trec_collection(source, bad_rows)
        case SentencePairsSourceConfig():
            return sentence_pairs_collection(source, bad_rows)
        case _:
            assert_never(source)


def _kept(found: Iterable[RawText], name: str, bad_rows: BadRows) -> tuple[list[RawText], Container[str]]:
    """Return the non-empty texts, each id once, and the ids of all: judgements may name empty documents, which are not
    indexed."""
    places: dict[str, str] = {}
    usable: list[RawText] = []
    for each in found:
        if each.id in places:
            message = f"{each.where}: the {name} {each.id!r} stands at {places[each.id]} already."
            bad_rows.report(f"repeated_{name}", message)
            continue
        places[each.id] = each.where
        if each.title or each.text:
            usable.append(each)
        else:
            bad_rows.report(f"empty_{name}", f"{each.where}: the {name} {each.id!r} has no text.")
    return usable, places.keys()


def _judged(
    collection: Collection, name: str, queries: Mapping[str, str], documents: Container[str], bad_rows: BadRows
) -> _Judged:
    """Read a file of judgements; known queries and documents tell a header from a malformed judgement."""
    path = existing_file(collection.folder, name)
    judged: _Judged = {}
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        where, found = f"{path}:{number}", collection.judgement_in(line)
        query, document, relevance = found or ("", "", None)
        names_nothing = query.casefold() == "query-id" or (query not in queries and document not in documents)
        if relevance is None:
            if not (number == 1 and collection.may_have_header and found and names_nothing):
                message = f"{where} is {line[:80]!r}; expected {collection.expected}."
                bad_rows.report("malformed_judgement", message)
        elif query not in queries:
            hint = " Does source.query_ids say rightly how queries are named?"
            message = f"{where} names the query {query!r}, which is not there.{hint}"
            bad_rows.report("judgement_of_unknown_query", message)
        elif document not in documents:
            message = f"{where} names the document {document!r}, which is not there."
            bad_rows.report("judgement_of_unknown_document", message)
        elif judged.setdefault(query, {}).setdefault(document, relevance) != relevance:
            message = (
                f"{where} gives the document {document!r} the relevance {relevance}; "
                f"an earlier line gave it {judged[query][document]}."
            )
            bad_rows.report("contradicting_judgement", message)
    return judged


def _with_relevant(task: str, split: SplitName, judged: _Judged, dropped: Counter[str]) -> _Judged:
    with_relevant = {query: of_query for query, of_query in judged.items() if max(of_query.values()) > 0}
    dropped["query_without_relevant_document"] += len(judged) - len(with_relevant)
    if not with_relevant:
        raise DataError(f"tasks.{task}: no query of the {split} judgements has a relevant document (above 0).")
    return with_relevant


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
    untaken = [query for query in ids if query not in taken and same_text([queries[query]]) not in texts]
    dropped[reason] += len(ids) - len(untaken)
    return untaken


def _rows(ids: list[str], queries: Mapping[str, str], judged: _Judged) -> QueryRows:
    return QueryRows(
        ids,
        [queries[query] for query in ids],
        [list(judged[query]) for query in ids],
        [list(judged[query].values()) for query in ids],
    )
