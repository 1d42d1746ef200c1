"""Start of a pretraining: from its own checkpoint, a finished run to extend, a given model, or random weights."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from bertline.examples.store import num_segments
from bertline.foundation.errors import ArtifactError, ConfigError
from bertline.foundation.manifests import MANIFEST_NAME
from bertline.foundation.progress import say
from bertline.modeling.attention import attention_device
from bertline.modeling.bert import MaskedLanguageModel
from bertline.modeling.huggingface import load_with_head, read_config
from bertline.modeling.initialization import initialize
from bertline.pretraining.config import PhaseConfig
from bertline.pretraining.data import read_examples_manifest
from bertline.pretraining.job import PretrainJob, require_same
from bertline.pretraining.plan import Plan
from bertline.pretraining.row_layout import pretraining_attention
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.checkpoints import Checkpoint, CheckpointFolder
from bertline.training.devices import Machine

# Keys of the model section that affect how weights are trained, not their shapes or meaning.
_FREE_MODEL_KEYS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")


def build_model(job: PretrainJob, tokenizer: Tokenizer, machine: Machine) -> MaskedLanguageModel:
    """Build the model with the weights of a new training: those of `start_from_folder`, or random ones.

    Raises:
        ArtifactError: The examples were made with a vocabulary of another size, or for another objective.
        ConfigError: The checkpoint to start from has another shape or vocabulary.
    """
    examples = read_examples_manifest(job.examples_folder)
    if num_segments(examples) != job.objective.num_segments:
        raise ArtifactError(
            f"{job.examples_folder} has sequences of {num_segments(examples)} segment(s), objective.kind="
            f"{job.objective.kind} learns from {job.objective.num_segments}. Run the examples stage again with "
            f"examples={job.objective.examples}."
        )
    encoded_with = examples["vocab_size"]
    if encoded_with != tokenizer.vocab_size:
        raise ArtifactError(
            f"{job.examples_folder} was made with a vocabulary of {encoded_with} tokens, {job.tokenizer_folder} has "
            f"{tokenizer.vocab_size}. Run the examples stage again."
        )
    device = attention_device(machine.device, machine.precision)
    first_length = job.pretrain.phases[0].max_length
    model = job.objective.model_class()(
        job.model,
        vocab_size=tokenizer.vocab_size,
        pad_token_id=tokenizer.pad_id,
        attention=pretraining_attention(job.runtime, job.model, device, first_length).kind,
    )
    if job.start_from_folder is None:
        initialize(model, job.model, seed=job.pretrain.seed)
    else:
        _require_fitting(job, job.start_from_folder, tokenizer)
        # Heads that the checkpoint lacks are initialised randomly, with a warning.
        model.load_state_dict(load_with_head(job.start_from_folder, job.objective.model_class()).state_dict())
        say(f"pretraining starts from {job.start_from_folder}")
    return model


def find_checkpoint(job: PretrainJob, identity: dict[str, Any]) -> Checkpoint | None:
    """Return the checkpoint to resume from: this run's newest, else the last one of the run it extends, else None.

    Raises:
        ConfigError: The checkpoint belongs to a different training, or the run cannot be extended by this job.
    """
    checkpoint = CheckpointFolder(job.checkpoints_folder, keep=job.pretrain.keep_checkpoints).load_newest()
    if checkpoint is not None:
        _require_same_precision(checkpoint, identity, job)
        require_same(checkpoint.state["identity"], identity, where=str(job.run_folder), extending=False)
        if checkpoint.step < job.pretrain.num_steps:
            say(f"pretraining resumes after step {checkpoint.step:,} of {job.pretrain.num_steps:,}")
        return checkpoint
    return None if job.extend_from is None else _extended(job, job.extend_from, identity)


def _extended(job: PretrainJob, folder: Path, identity: dict[str, Any]) -> Checkpoint:
    if not (folder / "result" / MANIFEST_NAME).exists():
        raise ConfigError(
            f"pretrain.extends names {folder}, which is not a finished run. Finish it first (run it again), or name "
            "another one."
        )
    checkpoint = CheckpointFolder(folder / "checkpoints", keep=1).load_newest()
    if checkpoint is None:
        raise ConfigError(
            f"pretrain.extends names {folder}, but its checkpoints are gone. Train from scratch (extends: null)."
        )
    _require_same_precision(checkpoint, identity, job)
    require_same(checkpoint.state["identity"], identity, where=str(folder), extending=True)
    plan, num_steps = Plan.of(job.pretrain), checkpoint.step
    phases = [PhaseConfig(**phase) for phase in checkpoint.state["identity"]["pretrain"]["phases"]]
    if plan.num_steps <= num_steps:
        raise ConfigError(
            f"pretrain.extends: that run has {num_steps:,} steps, this configuration {plan.num_steps:,}. "
            "Raise the steps of the last phase, or add a phase."
        )
    if not plan.starts_like(Plan(phases, num_steps)):
        raise ConfigError(
            f"pretrain.extends: the first {num_steps:,} steps must be those of that run, pretrain.phases gives them "
            "another length or batch. Keep its phases as they were; lengthen the last one or add another."
        )
    say(f"pretraining extends {folder} after step {num_steps:,} to {plan.num_steps:,}")
    return checkpoint


def _require_same_precision(checkpoint: Checkpoint, identity: dict[str, Any], job: PretrainJob) -> None:
    found = checkpoint.state["identity"]["resolved"]["precision"]
    expected = identity["resolved"]["precision"]
    if found != expected:
        raise ConfigError(
            f"{checkpoint.path} was trained in {found}; pretrain.precision={job.pretrain.precision} is {expected} on "
            f"this machine. Resume where {found} is native, or set pretrain.precision={found}."
        )


def _require_fitting(job: PretrainJob, folder: Path, tokenizer: Tokenizer) -> None:
    config, vocab_size, _ = read_config(folder)
    ours, theirs = dataclasses.asdict(job.model), dataclasses.asdict(config)
    problems = [
        f"model.{key} is {ours[key]}, the checkpoint's is {theirs[key]}"
        for key in ours
        if key not in _FREE_MODEL_KEYS and ours[key] != theirs[key]
    ]
    if vocab_size != tokenizer.vocab_size:
        problems.append(f"the tokenizer has {tokenizer.vocab_size} tokens, the checkpoint {vocab_size}")
    else:
        tokens = enumerate(zip(tokenizer.vocab, Tokenizer.load(folder).vocab, strict=True))
        different = next(((index, ours, theirs) for index, (ours, theirs) in tokens if ours != theirs), None)
        if different:
            problems.append("token {} is {!r} in the tokenizer and {!r} in the checkpoint".format(*different))
    if problems:
        raise ConfigError(
            f"pretrain.start_from names {folder}, which does not fit:\n"
            + "\n".join(f"  - {problem}" for problem in problems)
            + "\nGive the model section the checkpoint's figures, and use its vocabulary (tokenizer=existing)."
        )
