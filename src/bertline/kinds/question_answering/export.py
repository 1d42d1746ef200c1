"""Model card of a task of the kind `question_answering`."""

from __future__ import annotations

from bertline.export.usage import Usage
from bertline.finetuning.task_file import FinishedTask


def usage(finished: FinishedTask, *, pair: bool) -> Usage:
    """Return the usage of a model of this kind."""
    calibration = finished.calibration
    limits = ["The answer is always words of the context."]
    if calibration:
        limits.append(
            "It gives no answer where the best one falls behind by more than a threshold that was chosen on dev "
            "(`task.json`)."
        )
    else:
        limits.append("It gives an answer to every question, also where the context has none.")
    return Usage(
        what="Finds the answer to a question in a context.",
        tag="question-answering",
        pipeline=False,
        snippets=(
            'import bertline\n\nbertline.load("NAME").predict(["Who wrote it?"], ["It was written by her."])  '
            "# text, start, score",
        ),
        limits=tuple(limits),
    )
