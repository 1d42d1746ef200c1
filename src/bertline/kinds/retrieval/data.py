"""Collections with queries and relevance judgements, as splits of a retrieval task."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from bertline.demo.docstrings import ModuleDocs
from bertline.kinds.retrieval.config import RetrievalTaskConfig
from bertline.tasks.search_data import search_splits
from bertline.tasks.stored_rows import BuiltTask, QueryRows, read_rows


def built_task(name: str, config: RetrievalTaskConfig, modules: Iterable[ModuleDocs] = ()) -> BuiltTask[QueryRows]:
    """Read the collection and split its queries.

    Raises:
        DataError: The data is invalid. The message names file and line, the problem and how to fix it.
    """
    return search_splits(name, config, config.source, modules)


stored_rows = partial(read_rows, rows_class=QueryRows)
"""Reads a split that the stage has written."""
