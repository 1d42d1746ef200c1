"""Report and model card of a task of the kind `tagging`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bertline.evaluation.html import counted, escape, quote, sureness
from bertline.export.usage import Usage, code_span
from bertline.finetuning.task_file import FinishedTask


def error_block(error: dict[str, Any]) -> str:
    """Return the HTML of an error: the words, and at each wrong one its tag and the tag that was given."""
    gold, predicted = str(error["gold"]).split(" "), str(error["predicted"]).split(" ")
    shown = zip(error["words"], gold, predicted, strict=False)  # long lists of words are cut
    return quote(f'<p class="tagged">{" ".join(_word(*word) for word in shown)}</p>', sureness(error).strip("()"))


def _word(word: str, gold: str, predicted: str) -> str:
    if gold == predicted:
        return f"<span>{escape(word)}</span>"
    return f'<mark class="wrong">{escape(word)}<small>{escape(predicted)}, is {escape(gold)}</small></mark>'


def about(labels: Sequence[str]) -> str:
    """Return a sentence on what the task asks for."""
    return f"Tagging: which of the {counted(labels, 'tag')} does each word have?"


def row_measure(metric: str) -> str:
    """Return what the column `correct` of the predictions measures, in words."""
    return "the share of words with the right tag"


def usage(finished: FinishedTask, *, pair: bool) -> Usage:
    """Return the usage of a model of this kind."""
    config = finished.kind.config
    limits = [
        "It was trained on the words of a treebank (`do n't` is two). A text is split at white space and punctuation; "
        "give lists of words for the split of the treebank."
    ]
    if config.word_logits == "mean":
        limits.append("A word's logits are the mean of its tokens'; transformers' pipeline decides token by token.")
    if config.word_case == "marked":
        limits.append(
            "The model reads the case of words in the `token_type_ids` of their tokens, which transformers' pipeline "
            "does not set."
        )
    return Usage(
        what=f"Gives every word a tag: {', '.join(map(code_span, finished.kind.labels))}.",
        tag="token-classification",
        pipeline=config.word_case == "plain",
        snippets=(
            'import bertline\n\nbertline.load("NAME").predict(["A text to tag."])  # text, tag, start, end, score',
        ),
        limits=tuple(limits),
    )
