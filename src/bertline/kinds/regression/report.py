"""Report and model card of a task of the kind `regression`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bertline.evaluation.html import inputs_of, plain, quote
from bertline.export.usage import Usage, VectorSettings
from bertline.finetuning.task_file import FinishedTask


def error_block(error: dict[str, Any]) -> str:
    """Return the HTML of an error."""
    return quote(inputs_of(error), f"is {plain(error['gold'])}, taken for {plain(error['predicted'])}")


def about(labels: Sequence[str]) -> str:
    """Return a sentence on what the task asks for."""
    return "Regression: which number does a text, or a pair of texts, have?"


def row_measure(metric: str) -> str:
    """Return what the column `correct` of the predictions measures, in words."""
    return "1 minus the distance from the right number, as a share of the scale,"


def usage(finished: FinishedTask, *, pair: bool) -> Usage:
    """Return the usage of a model of this kind."""
    config = finished.kind.config
    scale = f"from {config.low:g} to {config.high:g}"
    ours = 'import bertline\n\nbertline.load("NAME").predict(["One text."], ["Another text."])'
    if config.head == "cosine":
        return Usage(
            what=f"Says how alike two texts are, {scale}, by the cosine of their vectors.",
            tag="sentence-similarity",
            pipeline=True,
            snippets=(
                f'{ours}\nbertline.load("NAME").embed(["One text.", "Another text."])  # one vector each',
                "from sentence_transformers import SentenceTransformer\n\n"
                '# "NAME" is the folder that this file lies in.\nmodel = SentenceTransformer("NAME")\n'
                'model.similarity(*model.encode(["One text.", "Another text."]))  # the cosine itself',
            ),
            vectors=VectorSettings(pooling=config.pooling, similarity="cosine", prompts={}),
            limits=("What counts as alike is what the annotators of its training pairs took it for.",),
        )
    return Usage(
        what=f"Gives a text, or a pair of texts, a number {scale}.",
        tag="text-classification",
        pipeline=True,
        snippets=(ours,),
        limits=(
            "The class of transformers gives a number between about 0 and 1, which bertline puts on the scale.",
            "Numbers can lie a little outside the scale.",
        ),
    )
