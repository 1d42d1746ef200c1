"""Use a checkpoint as the encoder of the pipeline without training: read it, check it, write it in our format."""

from __future__ import annotations

from pathlib import Path

import torch

from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import folder_written_atomically
from bertline.foundation.manifests import versions_of, write_manifest
from bertline.foundation.progress import say
from bertline.modeling.bert import BertModel, MaskedLanguageModel
from bertline.modeling.huggingface import architecture_of, load_encoder, load_with_own_heads, save_model
from bertline.tokenization.storage import save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer


def take_checkpoint(source: Path, out: Path, *, title: str) -> dict[str, float | int]:
    """Write a checkpoint's encoder and vocabulary to `out`, with its pretraining heads if it has them.

    Args:
        source: Folder of any BERT checkpoint.
        out: Folder to write.
        title: Display name of the checkpoint; stored in the manifest as `taken_from`.

    Returns:
        Headline figures: number of parameters, number of layers, hidden size and vocabulary size.

    Raises:
        ArtifactError: The folder is not a BERT checkpoint, its vocabulary does not fit its embeddings, or the written
            weights differ when read back.
    """
    model, tokenizer = _read(source), Tokenizer.load(source)
    encoder = model if isinstance(model, BertModel) else model.bert
    if tokenizer.vocab_size > encoder.vocab_size:
        raise ArtifactError(
            f"{source}: the vocabulary has {tokenizer.vocab_size:,} subwords, but the embeddings only "
            f"{encoder.vocab_size:,} rows. Is this the tokenizer that belongs to the model?"
        )
    with folder_written_atomically(out) as folder:
        save_model(model, folder)
        save_tokenizer(tokenizer, folder)
        _require_same(model, _read(folder), source)
        figures = {
            "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
            "num_hidden_layers": encoder.config.num_hidden_layers,
            "hidden_size": encoder.config.hidden_size,
            "vocab_size": tokenizer.vocab_size,
        }
        content = {
            "metrics": figures,
            "taken_from": title,
            "heads": not isinstance(model, BertModel),
            "versions": versions_of("torch", "tokenizers"),
        }
        write_manifest(folder, kind="pretrain", format_version=1, content=content)
    say(f"nothing is pretrained: {title} is the encoder as it is ({figures['num_parameters']:,} parameters)")
    return dict(figures)


def _read(folder: Path) -> MaskedLanguageModel | BertModel:
    # Missing heads are not initialized at random: nothing would ever train them.
    has_heads = architecture_of(folder) in ("BertForPreTraining", "BertForMaskedLM")
    return load_with_own_heads(folder) if has_heads else load_encoder(folder)


def _require_same(model: torch.nn.Module, written: torch.nn.Module, source: Path) -> None:
    ours, theirs = model.state_dict(), written.state_dict()
    if ours.keys() != theirs.keys() or not all(torch.equal(ours[name], theirs[name]) for name in ours):
        raise ArtifactError(f"{source} was written and reads back with other weights. Copy the checkpoint again.")
