"""Report of a task of the kind `sentence_labelling`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertline.evaluation.error_html import CHARACTERS, quote, sureness
from bertline.evaluation.formatting import counted, escape, shortened


def error_blocks(errors: Sequence[dict[str, Any]], task_folder: Path) -> list[str]:
    """Return the HTML of errors: the sentences of each document with a wrong label."""
    return [_document(error) for error in errors]


def _document(error: dict[str, Any]) -> str:
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
