"""Report of a task of the kind `retrieval`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bertline.evaluation.error_html import ranking_block
from bertline.evaluation.formatting import metric_name
from bertline.tasks.storage import COLLECTION
from bertline.tasks.stored_rows import Documents


def error_blocks(errors: Sequence[dict[str, Any]], task_folder: Path) -> list[str]:
    """Return the HTML of errors, with the text of the first relevant document, of which an error only has the id."""
    wanted = {error["gold"].split(", ")[0] for error in errors}
    found = Documents.from_table(
        pq.read_table(task_folder / f"{COLLECTION}.parquet", filters=[("ids", "in", sorted(wanted))])
    )
    texts = dict(zip(found.ids, found.texts_read(), strict=True))
    return [ranking_block({**error, "right_document": texts.get(error["gold"].split(", ")[0])}) for error in errors]


def about(labels: Sequence[str]) -> str:
    """Return a sentence on what the task asks for."""
    return "Retrieval: find the documents of a collection that belong to a query."


def row_measure(metric: str) -> str:
    """Return what the column `correct` of the predictions measures, in words."""
    return metric_name(metric)
