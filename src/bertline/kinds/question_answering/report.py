"""Report and model card of a task of the kind `question_answering`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bertline.evaluation.html import CHARACTERS, escape, quote, shortened, sureness
from bertline.export.usage import Usage
from bertline.finetuning.task_file import FinishedTask

_AROUND = 160
"""Number of context characters shown on each side of an answer."""


def error_block(error: dict[str, Any]) -> str:
    """Return the HTML of an error."""
    gold, predicted = str(error["gold"] or ""), str(error["predicted"] or "")
    context = str(error.get("context", ""))
    blocks = [f"<p><b>{escape(error.get('question', ''))}</b></p>"]
    blocks.append(f"<p>{_marked(context, gold, predicted)}</p>" if context else "")
    note = f"is {gold or 'no answer'}, answered {predicted or 'no answer'} {sureness(error)}"
    return quote("".join(blocks), note)


def _marked(context: str, gold: str, predicted: str) -> str:
    """Return the context around the answers, with the gold and the predicted answer highlighted."""
    places: list[tuple[int, int, str]] = []
    for answer, css in ((gold, "right"), (predicted, "wrong")):
        at = context.find(answer) if answer else -1
        if at >= 0 and not any(at < end and start < at + len(answer) for start, end, _ in places):
            places.append((at, at + len(answer), css))
    if not places:
        return escape(shortened(context, CHARACTERS))
    places.sort()
    done = max(0, places[0][0] - _AROUND)
    if done:
        done += context[done:].find(" ") + 1  # begin with a whole word
    parts = ["… " if done else ""]
    for start, end, css in places:
        between = context[done:start]
        if len(between) > 3 * _AROUND:
            between = between[:_AROUND] + " … " + between[-_AROUND:]
        parts += [escape(between), f'<mark class="{css}">{escape(context[start:end])}</mark>']
        done = end
    rest = context[done:]
    return "".join(parts) + escape(shortened(rest, _AROUND))


def about(labels: Sequence[str]) -> str:
    """Return a sentence on what the task asks for."""
    return "Question answering: which span of a passage answers a question, or does none?"


def row_measure(metric: str) -> str:
    """Return what the column `correct` of the predictions measures, in words."""
    return "F1"


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
