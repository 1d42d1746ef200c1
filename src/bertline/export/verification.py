"""Proof that an exported folder means the same to transformers as to bertline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from bertline.foundation.errors import ArtifactError
from bertline.modeling.huggingface import load_classifier, load_pretraining_model, read_labels
from bertline.tokenization.tokenizer import Tokenizer

# Accents, capitals, punctuation, digits, Chinese characters, control and unknown ones, a blank, an overlong word.
CHECKED_TEXTS = (
    "The function returns a new array of the given shape and type.",
    "Café, naïve, Zürich, Ångström and façade: accents, é as one character and e\u0301 as two.",
    "Don't panic! (See section 3.2; e.g. numpy.ndarray.__getitem__[...] == None?)",
    "unbelievablyantidisestablishmentarianisms 0.1234567890e-12",
    "深度学习 means deep learning; Привет, κόσμε.",
    "tabs\tand\nnew lines\u00a0and\u200bzero width, \u0007bells, emoji \U0001f600.",
    "Paris is the [MASK] of France.",
    "x" * 120,
    "",
)
_MAX_SEQUENCE = 64


def verify_encoder(folder: Path, *, tolerance: float) -> float:
    """Hold a folder's `BertForPreTraining` to transformers': MLM logits at all positions, and NSP logits.

    Returns:
        The largest absolute difference of two logits.

    Raises:
        ArtifactError: A difference above the tolerance, other token ids, or weights missing on one side.
    """
    verify_tokenizer(folder)
    reference = _reference(transformers.BertForPreTraining, folder)
    model = load_pretraining_model(folder).eval()
    inputs = _inputs(folder)
    positions = torch.arange(inputs["input_ids"].shape[1]).expand_as(inputs["input_ids"])
    with torch.no_grad():
        expected = reference(**inputs)
        found = model(inputs["input_ids"], inputs["token_type_ids"], inputs["attention_mask"], positions)
    real = inputs["attention_mask"].bool()
    return max(
        _held(folder, "MLM", found.mlm_logits[real], expected.prediction_logits[real], tolerance),
        _held(folder, "NSP", found.nsp_logits, expected.seq_relationship_logits, tolerance),
    )


def verify_classifier(folder: Path, *, tolerance: float) -> float:
    """Hold a folder's classifier to transformers' `AutoModelForSequenceClassification`: logits and label names.

    Returns and raises as `verify_encoder`.
    """
    verify_tokenizer(folder)
    reference = _reference(transformers.AutoModelForSequenceClassification, folder)
    labels = tuple(reference.config.id2label[index] for index in range(reference.config.num_labels))
    if labels != read_labels(folder):
        raise ArtifactError(f"{folder}: transformers reads the labels {labels}, bertline {read_labels(folder)}.")
    inputs = _inputs(folder)
    with torch.no_grad():
        expected = reference(**inputs).logits
        model = load_classifier(folder).eval()
        found = model(inputs["input_ids"], inputs["token_type_ids"], inputs["attention_mask"])
    return _held(folder, "classification", found, expected, tolerance)


def verify_tokenizer(folder: Path) -> None:
    """Hold a folder's tokenizer to transformers': the same ids for texts that show every rule.

    Raises:
        ArtifactError: Other ids for a text.
    """
    reference = _reference_tokenizer(folder)
    tokenizer = Tokenizer.load(folder)
    for text in CHECKED_TEXTS:
        expected = reference(text)["input_ids"]
        found = [tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id]
        if found != expected:
            raise ArtifactError(
                f"{folder}: transformers cuts {text!r} into {reference.convert_ids_to_tokens(expected)}, "
                f"bertline into {tokenizer.tokens(found)}. Nothing was exported; see the tokenizer's configuration."
            )


def _reference_tokenizer(folder: Path) -> Any:
    # Progress bars, load reports and advice on long texts; what matters here is checked and raised.
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)


def _reference(cls: Any, folder: Path) -> Any:
    model, info = cls.from_pretrained(folder, local_files_only=True, output_loading_info=True)
    problems = {kind: sorted(map(str, keys)) for kind, keys in info.items() if keys}
    if problems:
        raise ArtifactError(f"{folder}: transformers does not load all of it, and nothing more: {problems}.")
    return model.eval()


def _inputs(folder: Path) -> dict[str, Tensor]:
    """The checked texts in pairs, padded, as transformers itself encodes them."""
    reference = _reference_tokenizer(folder)
    longest = min(_MAX_SEQUENCE, reference.model_max_length)
    texts = [text for text in CHECKED_TEXTS if text]
    return dict(
        reference(texts, texts[::-1], truncation=True, max_length=longest, padding="max_length", return_tensors="pt")
    )


def _held(folder: Path, name: str, found: Tensor, expected: Tensor, tolerance: float) -> float:
    difference = (found - expected).abs().max().item()
    # `not <=` also refuses NaN.
    if not difference <= tolerance:
        raise ArtifactError(
            f"{folder}: {name} logits differ from transformers' by {difference:.2e}, over export.logits_tolerance = "
            f"{tolerance:.0e}. Nothing was exported."
        )
    return difference
