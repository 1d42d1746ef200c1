"""Report and model card of a task of the kind `sentence_labelling`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bertline.evaluation.html import CHARACTERS, counted, escape, quote, shortened, sureness
from bertline.export.usage import Usage, code_span
from bertline.finetuning.task_file import FinishedTask


def error_block(error: dict[str, Any]) -> str:
    """Return the HTML of an error: the sentences of the document with a wrong label."""
    labelled = zip(error["sentences"], error["gold"], error["predicted"], strict=False)  # long lists are cut
    wrong = [_sentence(*each) for each in labelled if each[1] != each[2]]
    return quote("".join(wrong), sureness(error).strip("()"))


def _sentence(sentence: str, gold: str, predicted: str) -> str:
    note = f"is {escape(gold)}, taken for {escape(predicted)}"
    return f"<p>{escape(shortened(sentence, CHARACTERS))} <small>{note}</small></p>"


def about(labels: Sequence[str]) -> str:
    """Return a sentence on what the task asks for."""
    return f"Sentence labelling: which of the {counted(labels, 'label')} does each sentence of a document have?"


def row_measure(metric: str) -> str:
    """Return what the column `correct` of the predictions measures, in words."""
    return "the share of sentences with the right label"


def usage(finished: FinishedTask, *, pair: bool) -> Usage:
    """Return the usage of a model of this kind."""
    return Usage(
        what=f"Gives each sentence of a document a label: {', '.join(map(code_span, finished.kind.labels))}.",
        tag="token-classification",
        pipeline=False,
        snippets=(
            'import bertline\n\nbertline.load("NAME").predict([["One sentence.", "The next one."]])  '
            "# text, label, probability",
        ),
        limits=(
            "Each sentence is labelled from its own [CLS], which only bertline puts there.",
            f"The sentences of a document are read together, up to {finished.kind.config.max_length} tokens; a longer "
            "document is read in groups of whole sentences.",
        ),
    )
