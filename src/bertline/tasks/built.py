"""What a source holds before it is written: a task with its rows by split, or the collection of a search task."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from bertline.tasks.storage import SplitName
from bertline.tasks.stored_rows import Documents, QueryRows, StoredRows


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltTask:
    """A task ready to be written."""

    splits: dict[SplitName, StoredRows]
    """Rows of `train`, `dev`, `test` and, for each extra test, `test_NAME`. Train rows are in random order."""
    labels: tuple[str, ...]
    """Label names; empty for a task without labels."""
    dropped: Counter[str]
    """Number of dropped rows and of repairs, by reason."""
    versions: dict[str, str] = field(default_factory=dict)
    """Versions of the packages that the rows were read with."""
    collection: Documents | None = None
    """Documents to search; retrieval only."""
    more: dict[str, Any] = field(default_factory=dict)
    """Additional keys of the manifest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchSplits:
    """A collection of documents and its judged queries by split."""

    documents: Documents
    splits: dict[SplitName, QueryRows]
    dropped: Counter[str]
    more: dict[str, Any] = field(default_factory=dict)
    """Additional keys of the manifest."""
