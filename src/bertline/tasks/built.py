"""What every source comes to before it is written: rows by split, labels, and what was left out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from bertline.tasks.storage import SplitName
from bertline.tasks.stored_rows import Documents, StoredRows


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltTask:
    """A task, ready to be written."""

    splits: dict[SplitName, StoredRows]
    """`train`, `dev` and `test`, and `test_NAME` for each extra test. Train rows are in a random order."""
    labels: tuple[str, ...]
    """Empty for a task without labels."""
    dropped: Counter[str]
    """Rows left out, and repairs made, by reason."""
    versions: dict[str, str]
    """Of what the rows were made from or read with."""
    collection: Documents | None = None
    """What is searched, in retrieval."""
    more: dict[str, Any] = field(default_factory=dict)
    """Further keys of the manifest."""
