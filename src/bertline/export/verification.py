"""Verification that transformers and bertline compute the same for an exported folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from bertline.export.views import OUTPUT_NAMES, architecture_in, load_view, without_padding
from bertline.finetuning.token_marks import NUM_SEGMENT_TYPES
from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import read_json
from bertline.modeling.families import CONFIG_NAME
from bertline.modeling.huggingface import read_config
from bertline.tokenization.tokenizer import Tokenizer

# Accents, capitals, punctuation, digits, Chinese, control and unknown characters, [MASK], an overlong word, no text.
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


def verify_model(folder: Path, *, labels: Sequence[str] | None, tolerance: float) -> float:
    """Check a folder against transformers: all outputs at all positions except padding, label names and token ids.

    Args:
        folder: Folder with model and tokenizer.
        labels: Expected label names by index; None if the model has none.
        tolerance: Largest absolute difference of an output that passes.

    Returns:
        Largest absolute difference.

    Raises:
        ArtifactError: A difference is above the tolerance, token ids or labels differ, or transformers finds missing,
            unexpected or mismatched weights.
    """
    # Suppress progress bars, load reports and length warnings; problems are checked and raised here.
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    reference_tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    _verify_tokenizer(folder, reference_tokenizer)
    architecture = architecture_in(folder)
    reference = _reference(folder)
    if labels is not None:
        theirs = tuple(reference.config.id2label[index] for index in range(reference.config.num_labels))
        if theirs != tuple(labels):
            raise ArtifactError(f"{folder}: transformers reads the labels {theirs}, bertline {tuple(labels)}.")
    inputs = _inputs(folder, reference_tokenizer)
    with torch.no_grad():
        view = load_view(folder, architecture)
        read = {name: inputs[name] for name in view.input_names}
        expected, found = reference(**read), view(*read.values())
    real = inputs["attention_mask"].bool()
    return max(
        _held(folder, name, without_padding(ours, real), without_padding(expected[name], real), tolerance)
        for name, ours in zip(OUTPUT_NAMES[architecture], found, strict=True)
    )


def _verify_tokenizer(folder: Path, reference: Any) -> None:
    """Check that both tokenizers give equal token ids for texts that exercise every rule."""
    tokenizer = Tokenizer.load(folder)
    for text in CHECKED_TEXTS:
        expected = reference(text)["input_ids"]
        found = tokenizer.single.sequence(tokenizer.encode(text))
        if found != expected:
            raise ArtifactError(
                f"{folder}: transformers cuts {text!r} into {reference.convert_ids_to_tokens(expected)}, "
                f"bertline into {tokenizer.tokens(found)}. Nothing was exported; see the tokenizer's configuration."
            )
    first, second = (tokenizer.encode(text) for text in CHECKED_TEXTS[:2])
    pair, ids = reference(*CHECKED_TEXTS[:2]), tokenizer.pair.sequence(first, second)
    of_first = tokenizer.pair.first_length(len(first), len(second))
    types = [0] * of_first + [1] * (len(ids) - of_first)
    has_types = read_config(folder)[0].type_vocab_size > 1
    if pair["input_ids"] != ids or (has_types and pair.get("token_type_ids") != types):
        raise ArtifactError(
            f"{folder}: transformers makes {dict(pair)} of a pair, bertline the ids {ids} and the types {types}. "
            "Nothing was exported; see model_input_names in tokenizer_config.json."
        )


def _reference(folder: Path) -> Any:
    cls = getattr(transformers, read_json(folder / CONFIG_NAME)["architectures"][0])
    model, info = cls.from_pretrained(folder, local_files_only=True, output_loading_info=True)
    problems = {kind: sorted(map(str, keys)) for kind, keys in info.items() if keys}
    if problems:
        raise ArtifactError(f"{folder}: transformers does not load all of it, and nothing more: {problems}.")
    return model.eval()


def _inputs(folder: Path, reference: Any) -> dict[str, Tensor]:
    """Return the checked texts as padded pairs, encoded by transformers."""
    config = read_config(folder)[0]
    longest = min(_MAX_SEQUENCE, reference.model_max_length, config.max_position_embeddings)
    texts = [text for text in CHECKED_TEXTS if text]
    inputs = dict(
        reference(texts, texts[::-1], truncation=True, max_length=longest, padding="max_length", return_tensors="pt")
    )
    inputs.setdefault("token_type_ids", torch.zeros_like(inputs["input_ids"]))
    # Models with token marks have more token types than segments; the check covers every type.
    kinds_of_types = config.type_vocab_size // NUM_SEGMENT_TYPES
    if kinds_of_types > 1:
        inputs["token_type_ids"] += NUM_SEGMENT_TYPES * (inputs["input_ids"] % kinds_of_types)
    return inputs


def _held(folder: Path, name: str, found: Tensor, expected: Tensor, tolerance: float) -> float:
    difference = (found - expected).abs().max().item()
    # `not <=` also rejects NaN.
    if not difference <= tolerance:
        raise ArtifactError(
            f"{folder}: {name} differ from transformers' by {difference:.2e}, over export.logits_tolerance = "
            f"{tolerance:.0e}. Nothing was exported."
        )
    return difference
