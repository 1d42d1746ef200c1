"""Collections with queries and relevance judgements, as splits of a retrieval task."""

from __future__ import annotations

from pathlib import Path

from bertline.demo.config import PythonDocsConfig
from bertline.kinds.retrieval.config import RetrievalTaskConfig
from bertline.tasks.built import BuiltTask
from bertline.tasks.search_data import search_splits, search_versions
from bertline.tasks.storage import SplitName, read_rows
from bertline.tasks.stored_rows import QueryRows


def built_task(name: str, config: RetrievalTaskConfig, python_docs: PythonDocsConfig, *, num_workers: int) -> BuiltTask:
    """Read the collection and split its queries.

    Raises:
        DataError: The data is invalid. The message names file and line, the problem and how to fix it.
    """
    source = search_splits(name, config, config.source, python_docs, num_workers=num_workers)
    return BuiltTask(
        splits={**source.splits},
        labels=(),
        dropped=source.dropped,
        versions=search_versions(config.source, python_docs),
        collection=source.documents,
        more=source.more,
    )


def stored_rows(folder: Path, split: SplitName) -> QueryRows:
    """Read a split that the stage has written."""
    return read_rows(folder, split, QueryRows)
