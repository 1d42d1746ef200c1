"""Report of a task of the kind `retrieval`."""

from __future__ import annotations

from collections.abc import Sequence

from bertline.evaluation.html import metric_name, ranking_block

error_block = ranking_block


def about(labels: Sequence[str]) -> str:
    """Return a sentence on what the task asks for."""
    return "Retrieval: find the documents of a collection that belong to a query."


row_measure = metric_name
