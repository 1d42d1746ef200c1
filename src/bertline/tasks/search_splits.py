"""The result of reading any source of a search task."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from bertline.tasks.storage import SplitName
from bertline.tasks.stored_rows import Documents, QueryRows


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchSplits:
    """A collection of documents and its judged queries by split."""

    documents: Documents
    splits: dict[SplitName, QueryRows]
    dropped: Counter[str]
    more: dict[str, Any] = field(default_factory=dict)
    """Additional keys of the manifest."""
