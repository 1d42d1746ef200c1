"""Loading of a model for inference."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from bertline.finetuning.task_file import read_task_file
from bertline.foundation.errors import ArtifactError, MachineError
from bertline.foundation.files import read_json
from bertline.inference.model import LoadedModel
from bertline.inference.plain import task_of_plain_folder
from bertline.inference.predictor import predictor_of
from bertline.modeling.bert import BertModel
from bertline.modeling.huggingface import architecture_of, load_encoder, load_with_own_heads, read_config
from bertline.tokenization.resolve import resolve_folder
from bertline.tokenization.tokenizer import Tokenizer

# The fused kernel is never slower without gradients and in fp32.
_ATTENTION: Literal["sdpa"] = "sdpa"


def load(name_or_folder: str, *, revision: str | None = None, device: str = "auto") -> LoadedModel:
    """Load a model with its tokenizer; see `bertline.load`."""
    folder = resolve_folder(name_or_folder, revision)
    chosen = _device(device)
    architecture = architecture_of(folder)
    tokenizer = Tokenizer.load(folder)
    positions = read_config(folder)[0].max_position_embeddings
    max_length = min(positions, _tokenizer_max_length(folder))
    finished = read_task_file(folder) or task_of_plain_folder(folder, max_length=max_length)
    model = (
        _encoder_in(folder, architecture)
        if finished is None
        else finished.kind.load_model(folder, attention=_ATTENTION)
    )
    encoder: Any = model if isinstance(model, BertModel) else model.bert
    if tokenizer.vocab_size > encoder.vocab_size:
        raise ArtifactError(
            f"{folder}: the tokenizer has {tokenizer.vocab_size} tokens, the model {encoder.vocab_size}. "
            "They are not from the same training; copy the folder again."
        )
    model = model.to(chosen).eval()
    if finished is not None:
        max_length = min(max_length, finished.kind.config.max_length)
    task = None if finished is None else predictor_of(finished, model, tokenizer)
    return LoadedModel(model, tokenizer, max_length=max_length, task=task, name=name_or_folder)


def _encoder_in(folder: Path, architecture: str) -> nn.Module:
    """Load the encoder of a folder, with its pretraining heads if present."""
    if architecture in ("BertForPreTraining", "BertForMaskedLM"):
        return load_with_own_heads(folder, attention=_ATTENTION)
    return load_encoder(folder, attention=_ATTENTION)


def _tokenizer_max_length(folder: Path) -> int:
    """Return the maximum sequence length declared by the tokenizer, beyond which positions may be untrained."""
    path = folder / "tokenizer_config.json"
    declared = read_json(path).get("model_max_length") if path.is_file() else None
    return int(declared) if declared else 1 << 30


def _device(name: str) -> torch.device:
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    # PyTorch raises a different error for each kind of missing device.
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise MachineError(
            f"device {name!r} cannot be used here ({str(error).splitlines()[0]}). Use auto or cpu."
        ) from error
    return device
