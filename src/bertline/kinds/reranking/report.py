"""Report and model card of a task of the kind `reranking`."""

from __future__ import annotations

from collections.abc import Sequence

from bertline.evaluation.html import metric_name, ranking_block
from bertline.export.usage import Usage
from bertline.finetuning.task_file import FinishedTask

error_block = ranking_block


def about(labels: Sequence[str]) -> str:
    """Return a sentence on what the task asks for."""
    return "Re-ranking: put the candidates that answer a query before the others."


row_measure = metric_name


def usage(finished: FinishedTask, *, pair: bool) -> Usage:
    """Return the usage of a model of this kind."""
    return Usage(
        what="Puts candidates for a query into a better order; reads query and candidate together.",
        tag="text-ranking",
        pipeline=True,
        snippets=(
            'import bertline\n\nbertline.load("NAME").predict(["a question"], [["A candidate.", "Another one."]])',
            "from sentence_transformers import CrossEncoder\n\n"
            'CrossEncoder("NAME").rank("a question", ["A candidate.", "Another one."])',
        ),
        limits=("Scores order the candidates of one query; between queries they mean nothing.",),
    )
