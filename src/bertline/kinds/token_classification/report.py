"""Report and model card of a task of the kind `token_classification`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bertline.evaluation.html import counted, escape, label_block, quote, sureness
from bertline.export.usage import Usage, code_span
from bertline.finetuning.task_file import FinishedTask
from bertline.finetuning.word_tagging import OUTSIDE_MARGIN


def error_block(error: dict[str, Any]) -> str:
    """Return the HTML of an error."""
    gold, predicted = str(error["gold"]).split(), str(error["predicted"]).split()
    words = str(error.get("text", "")).split(" ")
    if not len(words) == len(gold) == len(predicted):
        return label_block(error)
    lines = []
    for name, tags in (("right", gold), ("given", predicted)):
        spans = " ".join(_word(word, tag, other) for word, tag, other in zip(words, tags, gold, strict=True))
        lines.append(f'<p class="tagged"><small>{name}</small> {spans}</p>')
    return quote("".join(lines), sureness(error).strip("()"))


def _word(word: str, tag: str, gold: str) -> str:
    if tag == "O":
        missed = ' class="missed"' if gold != "O" else ""
        return f"<span{missed}>{escape(word)}</span>"
    kind = tag.partition("-")[2]
    css = "right" if tag == gold else "wrong"
    label = f"<small>{escape(kind)}</small>" if tag.startswith("B") else ""
    return f'<mark class="{css}">{escape(word)}{label}</mark>'


def about(labels: Sequence[str]) -> str:
    """Return a sentence on what the task asks for."""
    types = [tag.removeprefix("B-") for tag in labels if tag.startswith("B-")]
    return f"Token classification: mark the words that form entities of the {counted(types, 'type')}."


def row_measure(metric: str) -> str:
    """Return what the column `correct` of the predictions measures, in words."""
    return "the share of words with the right tag"


def usage(finished: FinishedTask, *, pair: bool) -> Usage:
    """Return the usage of a model of this kind."""
    config, labels, calibration = finished.kind.config, finished.kind.labels, finished.calibration
    types = sorted({label.split("-", 1)[1] for label in labels if "-" in label})
    limits = ["Words are cut at white space and punctuation, as in training; an entity never ends inside a word."]
    if config.head == "crf":
        limits.append(
            "Tags are decoded by a conditional random field (`crf.safetensors`), which bertline alone reads: "
            "transformers and the ONNX files give the scores of each token that go into it, not its decision."
        )
    if config.word_logits == "mean":
        limits.append(
            "A word's logits are the mean of its tokens'. transformers' pipeline decides token by token; with "
            "`aggregation_strategy` `average` it takes the mean of their probabilities, which can differ."
        )
    marked = config.word_case == "marked"
    if marked:
        limits.append(
            "The model reads the case of words in the `token_type_ids` of all their tokens: 0 for a word without "
            "capitals, 2 where its first character is a capital and no other is, 4 where all its letters are, two at "
            "least, 6 for any other. transformers' pipeline does not set them."
        )
    if calibration.get(OUTSIDE_MARGIN):
        limits.append(
            f"bertline takes a word for O only where its logit is more than {calibration[OUTSIDE_MARGIN]:.3g} above "
            "the best tag's, which dev chose (`task.json`); transformers and ONNX do not."
        )
    return Usage(
        what=f"Marks in running text: {', '.join(code_span(name) for name in types)}.",
        tag="token-classification",
        pipeline=config.head != "crf" and not marked,
        snippets=(
            'import bertline\n\nbertline.load("NAME").predict(["A text with names in it."])  '
            "# type, text, start, end, score",
        ),
        limits=tuple(limits),
    )
