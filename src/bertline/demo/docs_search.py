"""The task `docs_search`: find the function that a sentence describes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from bertline.demo.config import DocsSearchSourceConfig
from bertline.demo.docstrings import Docstring, ModuleDocs
from bertline.demo.rows import functions_kept, items_by_side, ordered_splits, summary_and_rest
from bertline.foundation.errors import DataError
from bertline.tasks.stored_rows import BuiltTask, Documents, QueryRows

_MIN_QUERY_WORDS = 4


@dataclass(frozen=True, slots=True)
class _Function:
    id: str
    summary: str
    query: str
    """Summary, without the function's name if the document contains it."""
    document: str
    package: str


def docs_search_splits(
    modules: Iterable[ModuleDocs], config: DocsSearchSourceConfig, *, num_train_rows: int | None, seed: int
) -> BuiltTask[QueryRows]:
    """Build queries from summaries, each with one relevant document: the rest of the function's docstring.

    A query is the first sentence of a docstring. Its document is all prose after it, including descriptions of
    parameters and results, truncated to `max_words`. If the document names the function, the name is removed from the
    query. Train functions come from pretraining modules. Dev and test functions come from held-out modules, and their
    queries and documents do not occur in pretraining text. Dev and test share no module, and no query or document
    occurs twice. All splits search one collection, which other functions fill up to `num_documents`.

    Args:
        modules: Modules from `bertline.demo.docstrings.read_modules`.
        config: Sizes of documents, collection and splits.
        num_train_rows: Number of train queries; None takes as many as the collection has room for.
        seed: `split_seed` of the task.

    Raises:
        DataError: The collection is too small for the queries.
    """
    dropped: Counter[str] = Counter()
    seen: set[str] = set()
    train, held_out = items_by_side(
        list(modules),
        lambda module: functions_kept(module, lambda each: _function(module, each, config, seen), dropped),
        lambda each: (each.query, each.summary, each.document),
        dropped,
    )
    ordered = ordered_splits(train, held_out, config, lambda function: function.package, seed=seed)
    dev, test = ordered["dev"][: config.num_dev_rows], ordered["test"][: config.num_test_rows]
    room = config.num_documents - len(dev) - len(test)
    if room < (num_train_rows or 1):
        raise DataError(
            f"docs_search: {config.num_documents} documents (source.num_documents) are too few for {len(dev)} dev, "
            f"{len(test)} test and {num_train_rows or 'any'} train queries, each of which has its own."
        )
    # Unused dev and test functions also become documents: distractors of the same kind as the relevant ones.
    others = [*ordered["train"], *ordered["dev"][len(dev) :], *ordered["test"][len(test) :]]
    collection = sorted([*dev, *test, *others[:room]], key=lambda function: function.id)
    documents = Documents(
        [each.id for each in collection], [""] * len(collection), [each.document for each in collection]
    )
    splits = {"train": ordered["train"][: room if num_train_rows is None else num_train_rows], "dev": dev, "test": test}
    rows = {split: _rows(functions) for split, functions in splits.items()}
    return BuiltTask(splits=rows, dropped=dropped, collection=documents)


def _rows(functions: list[_Function]) -> QueryRows:
    return QueryRows(
        [each.id for each in functions],
        [each.query for each in functions],
        [[each.id] for each in functions],
        [[1] for _ in functions],
        clusters=[each.id.partition("#")[0] for each in functions],
    )


def _function(
    module: ModuleDocs, docstring: Docstring, config: DocsSearchSourceConfig, seen: set[str]
) -> _Function | str:
    """Return a function with its query and document, or the reason to drop it."""
    identity, own_name = f"{module.name}#{docstring.name}", docstring.name.rpartition(".")[2]
    summary, rest = summary_and_rest(docstring)
    document = " ".join(rest.split()[: config.max_words])
    name = re.compile(rf"(?<!\w){re.escape(own_name)}(?!\w)", re.IGNORECASE)
    query = " ".join(name.sub(" ", summary).split()) if name.search(document) else summary
    keys = (query.casefold(), document.casefold())
    if own_name.startswith("_"):
        return "private_function"
    if len(query.split()) < _MIN_QUERY_WORDS:
        return "query_of_too_few_words"
    if len(document.split()) < config.min_words:
        return "document_of_too_few_words"
    if identity in seen:
        return "repeated_name"
    if seen.intersection(keys):
        return "repeated_text"
    seen.update((identity, *keys))
    return _Function(identity, summary, query, document, module.package)
