"""The mean of the weights of two encoders, one trained from the other (WiSE-FT, arXiv 2109.01903, equation 1)."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from bertline.foundation.errors import ArtifactError, ConfigError
from bertline.foundation.files import read_json, write_json
from bertline.modeling.families import CONFIG_NAME, family_of
from bertline.modeling.weight_files import WEIGHTS_NAME, read_weights, write_weights
from bertline.tokenization.storage import copy_tokenizer
from bertline.tokenization.tokenizer import Tokenizer

_ENCODER, _POOLER = "bert.", "pooler."
_WORDS = "embeddings.word_embeddings.weight"
_NAMED = 4
"""Weights that an error names, at most."""


def average_encoders(before: Path, after: Path, folder: Path, *, share: float = 0.5) -> None:
    """Write a bare encoder with each weight the mean of those of two encoders, and the tokenizer of the second.

    Heads are left out: they fit the second encoder alone. A pooler that only one of them has is taken as it is.

    Args:
        folder: Folder to write; config.json and model.safetensors there are replaced.
        share: Weight of `after` in the mean, 0 to 1.

    Raises:
        ArtifactError: A folder has no weights, or the encoders differ in shape.
        DataError: A folder has no tokenizer.
        ConfigError: `share` is not in [0, 1].
    """
    if not 0 <= share <= 1:
        raise ConfigError(f"share is {share:g}; it is the weight of the second encoder in the mean, from 0 to 1.")
    first, second = _encoder_weights(before), _encoder_weights(after)
    alone = {name for name in first.keys() ^ second.keys() if name.startswith(_POOLER)}
    names = (first.keys() | second.keys()) - alone
    differing = sorted(name for name in names if _shape(first, name) != _shape(second, name))
    if differing:
        named = "; ".join(
            f"{name}: {_shape(first, name) or 'none'} and {_shape(second, name) or 'none'}"
            for name in differing[:_NAMED]
        )
        raise ArtifactError(
            f"{before} and {after} cannot be averaged: {len(differing)} weights differ in shape ({named}). Both must "
            "be of one architecture and vocabulary, such as a checkpoint and what was trained from it."
        )
    mean = {name: share * second[name] + (1 - share) * first[name] for name in names}
    mean |= {name: (first | second)[name] for name in alone}
    copy_tokenizer(after, folder)
    write_weights(mean, folder / WEIGHTS_NAME)
    changed = {"architectures": ["BertModel"], "vocab_size": len(mean[_WORDS])}
    write_json(folder / CONFIG_NAME, {**read_json(after / CONFIG_NAME), **changed})


def _encoder_weights(folder: Path) -> dict[str, Tensor]:
    """Return the weights of the encoder of a model folder, in fp32, under the names of a bare encoder; rows of the word
    embeddings behind its tokens, which pad a checkpoint to a round size, are left out."""
    if (family := family_of(folder)[0]).model_type != "bert":
        raise ArtifactError(f"{folder} is a {family.title}; the weights of BERT encoders are averaged.")
    read = read_weights(folder, with_output=False)
    weights = {
        name.removeprefix(_ENCODER): tensor.float() for name, tensor in read.items() if name.startswith(_ENCODER)
    }
    weights[_WORDS] = weights[_WORDS][: Tokenizer.load(folder).vocab_size]
    return weights


def _shape(weights: dict[str, Tensor], name: str) -> tuple[int, ...] | None:
    return tuple(weights[name].shape) if name in weights else None
