"""Report and model card of a task of the kind `classification`."""

from __future__ import annotations

from collections.abc import Sequence

from bertline.evaluation.html import counted, label_block
from bertline.export.usage import Usage, code_span
from bertline.finetuning.task_file import FinishedTask
from bertline.finetuning.temperature import TEMPERATURE
from bertline.kinds.classification.model import THRESHOLD

error_block = label_block


def about(labels: Sequence[str]) -> str:
    """Return a sentence on what the task asks for."""
    return f"Classification: which of the {counted(labels, 'label')} does a text, or a pair of texts, have?"


def row_measure(metric: str) -> str:
    """Return what the column `correct` of the predictions measures, in words."""
    return "the share of rows that are right"


_MARKED_BY_TRANSFORMERS = """\
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

# "NAME" is the folder that this file lies in.
tokenizer = AutoTokenizer.from_pretrained("NAME")
model = AutoModelForSequenceClassification.from_pretrained("NAME")
inputs = tokenizer("One text.", "The text to compare.", return_tensors="pt")
tokens, segments = inputs.tokens(), inputs["token_type_ids"][0].tolist()
special = set(tokenizer.all_special_tokens)
sides = [[t for t, s in zip(tokens, segments) if s == side and t not in special] for side in (0, 1)]
words = ["".join(t[2:] if t.startswith("##") else " " + t for t in side) for side in sides]


def mark(token, segment):
    text, others = token.removeprefix("##"), words[1 - segment]
    if token in special:
        return 0
    if token in sides[1 - segment]:
        return 1
    stem = text[: max(4, len(text) - 3)]
    return 2 * (len(text) >= 3 and (text in others or (len(text) > 4 and stem in others)))


inputs["token_type_ids"] += 2 * torch.tensor([[mark(t, s) for t, s in zip(tokens, segments)]])
probabilities = model(**inputs).logits.softmax(-1)"""


def usage(finished: FinishedTask, *, pair: bool) -> Usage:
    """Return the usage of a model of this kind."""
    config = finished.kind.config
    labels = finished.kind.labels
    inputs = '["One text."], ["The text to compare."]' if pair else '["One text.", "Another text."]'
    theirs = '{"text": "One text.", "text_pair": "The text to compare."}' if pair else '"One text."'
    several = ', top_k=None, function_to_apply="sigmoid"' if config.multi_label else ""
    named = ", ".join(code_span(label) for label in labels)
    temperature = finished.calibration.get(TEMPERATURE)
    calibrated = "they have not been calibrated"
    if temperature is not None:
        calibrated = (
            f"bertline divides the logits by {temperature:.3g} first, which dev chose (`task.json`), transformers and "
            "ONNX do not"
        )
    what = f"Sorts {'pairs of texts' if pair else 'texts'} into {len(labels)} classes: {named}."
    limits = [
        "Every input gets one of the labels above, also one that fits none of them.",
        f"The probabilities are those of the softmax; {calibrated}.",
    ]
    if THRESHOLD in finished.calibration and not config.multi_label:
        limits.append(
            f"bertline predicts {code_span(labels[1])} from a probability of {finished.calibration[THRESHOLD]:.3g} on, "
            "which dev chose (`task.json`); transformers and ONNX, whose probabilities are the same, from 0.5 on."
        )
    if config.multi_label:
        what = f"Gives {'pairs of texts' if pair else 'texts'} any number of {len(labels)} labels: {named}."
        threshold = finished.calibration.get(THRESHOLD, 0.5)
        limits = [
            f"A label is given from a probability of {threshold:g} on (`task.json`); "
            + (
                "the probabilities have not been calibrated."
                if temperature is None
                else f"of the probabilities, {calibrated}."
            )
        ]
    if config.long_texts == "windows":
        limits.append(
            "bertline reads a long text in overlapping windows and pools their scores; transformers cuts it instead."
        )
    by_bertline = f'import bertline\n\nbertline.load("NAME").predict({inputs})'
    by_transformers = (
        'from transformers import pipeline\n\n# "NAME" is the folder that this file lies in.\n'
        f'classify = pipeline("text-classification", model="NAME")\nclassify({theirs}{several})'
    )
    marked = config.shared_tokens == "marked"
    if marked:
        limits.append(
            "The model reads which tokens match the other text, in their `token_type_ids`: a token that the other text "
            "has too is of type 2 in the first text and 3 in the second, one that is part of a word there of type 4 "
            "and 5. transformers' pipeline does not set them; without them the scores mean little."
        )
    return Usage(
        what=what,
        tag="text-classification",
        pipeline=not marked,
        snippets=(by_bertline, _MARKED_BY_TRANSFORMERS) if marked else (by_transformers, by_bertline),
        limits=tuple(limits),
    )
