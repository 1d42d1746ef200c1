"""Result of pretraining: a folder that transformers can load, of a finished run or of a checkpoint taken as it is."""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bertline.encoders.loading import LanguageModel, load_encoder, load_model, save_model
from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import folder_written_atomically
from bertline.foundation.manifests import versions_of, write_manifest
from bertline.foundation.metrics_log import read_metrics
from bertline.foundation.progress import say
from bertline.modeling.families import GENERATOR
from bertline.modeling.huggingface import architecture_of, keep_pooler
from bertline.pretraining.config import PretrainConfig, checkpoint_title
from bertline.pretraining.data import read_examples_manifest
from bertline.pretraining.divergence import read_health
from bertline.pretraining.job import PretrainJob
from bertline.pretraining.plan import Plan
from bertline.tokenization.storage import copy_tokenizer, save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import resolve_folder

_HEADLINES = ("train/loss", "val/", "probe/")


def write_model_folder(job: PretrainJob, model: LanguageModel, target: Path) -> None:
    """Replace a model folder of the run."""
    with folder_written_atomically(target) as folder:
        _write_model(job, model, folder)


def write_result(
    job: PretrainJob,
    model: LanguageModel,
    identity: dict[str, Any],
    *,
    totals: dict[str, float],
    best: dict[str, Any] | None,
) -> dict[str, float]:
    """Write the result folder and return the headline figures."""
    metrics = headline_figures(job, model, totals)
    with folder_written_atomically(job.result_folder) as folder:
        _write_model(job, model, folder)
        for path in job.records:
            if path.exists():
                shutil.copyfile(path, folder / path.name)
        content = {
            "metrics": metrics,
            "best": best,
            "training": identity,
            "versions": versions_of("torch", "pytorch-lightning"),
        }
        write_manifest(folder, kind="pretrain", format_version=1, content=content)
    return metrics


def _write_model(job: PretrainJob, model: LanguageModel, folder: Path) -> None:
    save_model(model, folder)
    if job.start_from_folder is not None:
        keep_pooler(job.start_from_folder, folder)
    # An initial checkpoint may have seen longer sequences than this run.
    longest = None if job.start_from_folder else max(phase.max_length for phase in job.pretrain.phases)
    for each in (folder, *folder.glob(GENERATOR)):
        copy_tokenizer(job.tokenizer_folder, each, max_length=longest)


def headline_figures(job: PretrainJob, model: LanguageModel, totals: dict[str, float]) -> dict[str, float]:
    """Return the last value of each headline metric, and totals of the run.

    `perf/tokens_per_s` and `perf/mfu` are medians over the rows of metrics.jsonl, so that compilation and a busy minute
    do not count.
    """
    rows = [row.metrics for row in read_metrics(job.metrics_path)]
    last = {key: value for row in rows for key, value in row.items() if key.startswith(_HEADLINES)}
    length = str(Plan.of(job.pretrain).place(job.pretrain.num_steps - 1).max_length)
    return {
        **last,
        "unigram_entropy": read_examples_manifest(job.examples_folder)["lengths"][length]["unigram_entropy"],
        **{key: statistics.median(row[key] for row in rows if key in row) for key in ("perf/tokens_per_s", "perf/mfu")},
        "perf/data_wait_fraction": totals["data_wait_s"] / totals["train_time_s"],
        "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
        "num_tokens": totals["tokens"],
        "num_alarms": len(read_health(job.health_path)),
        "train_time_s": totals["train_time_s"],
        "steps": job.pretrain.num_steps,
    }


def take_checkpoint(config: PretrainConfig, out: Path) -> dict[str, float | int]:
    """Write encoder and vocabulary of `start_from` to `out`, with its pretraining heads; return the figures.

    Raises:
        ArtifactError: The folder is not a BERT checkpoint, its vocabulary does not fit its embeddings, or the written
            weights differ when read back.
    """
    assert config.start_from is not None  # validation requires it where there are no phases
    source, title = resolve_folder(config.start_from, config.start_from_revision), checkpoint_title(config)
    model, tokenizer = _read(source), Tokenizer.load(source)
    encoder: Any = getattr(model, "bert", model)
    if tokenizer.vocab_size > encoder.vocab_size:
        raise ArtifactError(
            f"{source}: the vocabulary has {tokenizer.vocab_size:,} subwords, but the embeddings only "
            f"{encoder.vocab_size:,} rows. Is this the tokenizer that belongs to the model?"
        )
    with folder_written_atomically(out) as folder:
        save_model(model, folder)
        if tokenizer.is_wordpiece:
            save_tokenizer(tokenizer, folder)
        else:
            copy_tokenizer(source, folder)
        ours, theirs = model.state_dict(), _read(folder).state_dict()
        if ours.keys() != theirs.keys() or not all(torch.equal(ours[name], theirs[name]) for name in ours):
            raise ArtifactError(f"{source} was written and reads back with other weights. Copy the checkpoint again.")
        figures = {
            "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
            "num_hidden_layers": encoder.config.num_hidden_layers,
            "hidden_size": encoder.config.hidden_size,
            "vocab_size": tokenizer.vocab_size,
        }
        content = {
            "metrics": figures,
            "taken_from": title,
            "heads": model is not encoder,
            "versions": versions_of("torch", "tokenizers"),
        }
        write_manifest(folder, kind="pretrain", format_version=1, content=content)
    say(f"nothing is pretrained: {title} is the encoder as it is ({figures['num_parameters']:,} parameters)")
    return dict(figures)


def _read(folder: Path) -> nn.Module:
    # Missing heads are not initialized at random: nothing would ever train them.
    has_heads = architecture_of(folder) in ("BertForPreTraining", "BertForMaskedLM")
    return load_model(folder, "mlm") if has_heads else load_encoder(folder)
