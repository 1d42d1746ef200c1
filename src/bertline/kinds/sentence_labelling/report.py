"""Report of a task of the kind `sentence_labelling`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bertline.evaluation.html import CHARACTERS, counted, escape, quote, shortened, sureness


def error_block(error: dict[str, Any]) -> str:
    """Return the HTML of an error: the sentences of the document with a wrong label."""
    labelled = zip(error["sentences"], error["gold"], error["predicted"], strict=False)  # long lists are cut
    wrong = [_sentence(*each) for each in labelled if each[1] != each[2]]
    return quote("".join(wrong), sureness(error).strip("()"))


def _sentence(sentence: str, gold: str, predicted: str) -> str:
    said = f"is {escape(gold)}, taken for {escape(predicted)}"
    return f"<p>{escape(shortened(sentence, CHARACTERS))} <small>{said}</small></p>"


def about(labels: Sequence[str]) -> str:
    """Return a sentence on what the task asks for."""
    return f"Sentence labelling: which of the {counted(labels, 'label')} does each sentence of a document have?"


def row_measure(metric: str) -> str:
    """Return what the column `correct` of the predictions measures, in words."""
    return "the share of sentences with the right label"
