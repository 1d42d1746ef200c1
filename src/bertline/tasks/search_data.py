"""Search collections (BEIR, line-aligned translations, docstrings) as splits of a retrieval task."""

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertline.corpus.lines import numbered_lines
from bertline.corpus.tables import FORMATS_BY_ENDING, JSON_LINES, TableRow, parsed_records
from bertline.demo.config import DocsSearchSourceConfig
from bertline.demo.docstrings import ModuleDocs
from bertline.demo.tasks import docs_search_splits
from bertline.foundation.bad_rows import BadRow, BadRows
from bertline.foundation.errors import DataError
from bertline.foundation.seeds import seed_for
from bertline.tasks.cells import one_line, text_in
from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.source_config import BeirSourceConfig, SentencePairsSourceConfig
from bertline.tasks.source_files import capped, cut_by_key, drop_repeated, num_rows_made, same_text, trains_nothing
from bertline.tasks.stored_rows import BuiltTask, Documents, QueryRows, SplitName

CollectionSource = DocsSearchSourceConfig | BeirSourceConfig | SentencePairsSourceConfig
# Relevance by query id, then document id; 0 or below: judged not relevant.
_Judged = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class _Text:
    where: str
    """File and line, for messages."""
    id: str
    text: str
    title: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Collection:
    """A collection in its files; documents and queries are read when they are iterated over."""

    documents: Iterable[_Text]
    queries: Iterable[_Text]
    judgements: Mapping[SplitName, Path | _Judged]
    """Judgements of each split, or the file with one a line."""


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
    collection = _READERS[type(source)](source, bad_rows)
    texts, known = _kept(collection.documents, "document", bad_rows)
    queries = {query.id: query.text for query in _kept(collection.queries, "query", bad_rows)[0]}
    bad_rows.end()
    if not texts:
        raise DataError("The collection has no document with a text. Check the files that the task's source names.")
    documents = Documents([each.id for each in texts], [each.title for each in texts], [each.text for each in texts])
    judgements = {
        split: _judged(path, queries, known, bad_rows) if isinstance(path, Path) else path
        for split, path in collection.judgements.items()
    }
    bad_rows.end()
    dropped = Counter(bad_rows.dropped)
    relevant: dict[SplitName, _Judged] = {}
    for split, judged in judgements.items():
        relevant[split] = {query: of_query for query, of_query in judged.items() if max(of_query.values()) > 0}
        dropped["query_without_relevant_document"] += len(judged) - len(relevant[split])
        if not relevant[split]:
            raise DataError(f"tasks.{task}: no query of the {split} judgements has a relevant document (above 0).")
    dropped["query_without_judgements"] += len(queries) - len({query for each in judgements.values() for query in each})
    # A split that was cut uses the judgements of the split it was cut from.
    source_of_cuts = relevant.get("train", relevant["test"])
    rows = {
        split: _rows(capped(ids, str, split, config, dropped), queries, relevant.get(split, source_of_cuts))
        for split, ids in _chosen_queries(relevant, queries, config, dropped).items()
    }
    more: dict[str, Any] = {}
    if not len(rows["dev"]) and trains_nothing(config):
        rows["dev"], more["dev_is_test"] = _capped(rows["test"], "dev", config, dropped), True
    return BuiltTask(splits={**rows}, dropped=dropped, collection=documents, more=more)


def _capped(rows: QueryRows, split: SplitName, config: BaseTaskConfig, dropped: Counter[str]) -> QueryRows:
    return rows.take(capped(range(len(rows)), lambda place: rows.ids[place], split, config, dropped))


def _kept(found: Iterable[_Text], name: str, bad_rows: BadRows) -> tuple[list[_Text], Container[str]]:
    """Return the non-empty texts, each id once, and the ids of all: judgements may name empty documents, which are not
    indexed."""
    places: dict[str, str] = {}
    usable: list[_Text] = []
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


def _judged(path: Path, queries: Mapping[str, str], documents: Container[str], bad_rows: BadRows) -> _Judged:
    judged: _Judged = {}
    for number, line in numbered_lines(path):
        if not line.strip() or (number == 1 and re.match("query[-_ ]?id", line, re.IGNORECASE)):
            continue
        where = f"{path}:{number}"
        fields = [field.strip() for field in line.split("\t" if "\t" in line else ",")]
        query, document, relevance = fields if len(fields) == 3 else ("", "", "")
        if (value := relevance_of(relevance)) is None:
            expected = "query id, document id and whole number between tabs or commas"
            bad_rows.report("malformed_judgement", f"{where} is {line[:80]!r}; expected {expected}.")
        elif query not in queries:
            message = f"{where} names the query {query!r}, which is not there."
            bad_rows.report("judgement_of_unknown_query", message)
        elif document not in documents:
            message = f"{where} names the document {document!r}, which is not there."
            bad_rows.report("judgement_of_unknown_document", message)
        elif judged.setdefault(query, {}).setdefault(document, value) != value:
            before = judged[query][document]
            message = f"{where} gives {document!r} the relevance {value}; an earlier line gave it {before}."
            bad_rows.report("contradicting_judgement", message)
    return judged


def _chosen_queries(
    relevant: Mapping[SplitName, _Judged], queries: Mapping[str, str], config: BaseTaskConfig, dropped: Counter[str]
) -> dict[SplitName, list[str]]:
    seed = config.split_seed
    splits = {split: list(relevant.get(split, ())) for split in ("train", "dev", "test")}
    if "train" not in relevant:
        splits["test"], splits["train"] = cut_by_key(splits["test"], str, "test", config.test_fraction, seed)
    if "dev" not in relevant:
        splits["dev"], splits["train"] = cut_by_key(splits["train"], str, "dev", config.dev_fraction, seed)
    dropped += drop_repeated(splits, lambda query: same_text([queries[query]]), "query")
    splits["train"].sort(key=lambda query: (seed_for(seed, "order", query), query))
    return {**splits, "train": splits["train"][: num_rows_made(config)]}


def _rows(ids: list[str], queries: Mapping[str, str], judged: _Judged) -> QueryRows:
    return QueryRows.of((query, queries[query], list(judged[query]), list(judged[query].values())) for query in ids)


def relevance_of(text: str) -> int | None:
    """Parse a relevance as an integer (`1`, `-1`, `2.0`); None if it is not one.

    >>> relevance_of("2"), relevance_of("1.0"), relevance_of("high"), relevance_of("nan")
    (2, 1, None, None)
    """
    try:
        value = float(text)
        return int(value) if value == int(value) else None
    except (ValueError, OverflowError):
        return None


def _existing(folder: str, name: str) -> Path:
    """Return the path of a source's file, or of `NAME.gz` if only that exists; opening it says what is missing."""
    path = Path(folder) / name
    packed = path.with_name(f"{path.name}.gz")
    return packed if packed.is_file() and not path.is_file() else path


def _beir_collection(source: BeirSourceConfig, bad: BadRows) -> _Collection:
    """Return the parts of a BEIR folder (arXiv 2104.08663), or of one like it.

    `corpus.jsonl`, or `.csv` and the like, has `_id` or `id`, `text` and, if present, `title`; so has `queries.jsonl`.
    A qrels file has query, document and relevance between tabs or commas, with or without a header `query-id ...`.
    """
    files = {"train": source.train_qrels, "dev": source.dev_qrels, "test": source.test_qrels}
    return _Collection(
        documents=_beir_texts(_table(source.path, "corpus"), bad, title_key="title"),
        queries=_beir_texts(_table(source.path, "queries"), bad, title_key=""),
        judgements={split: _existing(source.path, name) for split, name in files.items() if name is not None},
    )


def _table(folder: str, name: str) -> Path:
    tables = [path for ending in FORMATS_BY_ENDING for path in Path(folder).glob(f"{name}{ending}*")]
    return tables[0] if len(tables) == 1 else _existing(folder, f"{name}.jsonl")


def _beir_texts(path: Path, bad: BadRows, *, title_key: str) -> list[_Text]:
    def parse(record: TableRow) -> _Text:
        identity = record.values.get("_id", record.values.get("id"))
        value, title = (record.values.get(key) for key in ("text", title_key))
        if isinstance(identity, bool) or not isinstance(identity, str | int) or not str(identity).strip():
            raise BadRow("malformed_line", f"it has the _id {identity!r}; expected a text or a whole number")
        if (text := text_in(value)) is None:
            raise BadRow("malformed_line", f"it has {value!r} as its text; expected a text")
        return _Text(f"{path}:{record.line}", str(identity), one_line(text), one_line(text_in(title) or ""))

    return parsed_records(path, replace(JSON_LINES, format="auto"), bad, parse)


def _sentence_pairs(source: SentencePairsSourceConfig, bad: BadRows) -> _Collection:
    """Return the sentences of every language as queries and their translations as documents.

    A translation that occurs several times, for whichever language, is one document; a sentence that occurs several
    times in a language is one query, and all its translations are relevant.

    Notes:
        XTREME (arXiv 2003.11080, Tatoeba) searches the 1,000 translations of one language; with several languages the
        collection here has those of all, which is harder.

    Raises:
        DataError: A file is missing or not UTF-8, or the two files of a language have different numbers of lines.
    """
    documents: dict[str, _Text] = {}
    queries: dict[tuple[str, str], _Text] = {}
    judged: _Judged = {}
    for language in source.languages:
        names = (source.queries_file, source.documents_file)
        paths = [_existing(source.path, name.replace("{language}", language)) for name in names]
        sides = [[one_line(line) for _, line in numbered_lines(path)] for path in paths]
        if len(sides[0]) != len(sides[1]):
            raise DataError(
                f"{paths[0]} has {len(sides[0])} lines, {paths[1]} has {len(sides[1])}. Line n of one is the "
                "translation of line n of the other."
            )
        for number, (query, document) in enumerate(zip(*sides, strict=True), start=1):
            if not query or not document:
                bad.report("empty_sentence", f"{paths[1 if query else 0]}:{number}: the line is blank.")
                continue
            name = f"{language}:{number}"
            found = documents.setdefault(document, _Text(f"{paths[1]}:{number}", name, document))
            asked = queries.setdefault((language, query), _Text(f"{paths[0]}:{number}", name, query))
            judged.setdefault(asked.id, {})[found.id] = 1
    return _Collection(documents=documents.values(), queries=queries.values(), judgements={"test": judged})


_READERS: dict[type, Callable[[Any, BadRows], _Collection]] = {
    BeirSourceConfig: _beir_collection,
    SentencePairsSourceConfig: _sentence_pairs,
}
