"""Model card of a task of the kind `reranking`."""

from __future__ import annotations

from bertline.export.usage import Usage
from bertline.finetuning.task_file import FinishedTask


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
