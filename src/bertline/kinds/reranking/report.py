"""Report of a task of the kind `reranking`."""

from __future__ import annotations

from collections.abc import Sequence

from bertline.evaluation.html import metric_name, ranking_block

error_block = ranking_block


def about(labels: Sequence[str]) -> str:
    """Return a sentence on what the task asks for."""
    return "Re-ranking: put the candidates that answer a query before the others."


row_measure = metric_name
