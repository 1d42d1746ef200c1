"""Start and state of a training run: where its weights come from, what a checkpoint holds, how it resumes from it."""

from __future__ import annotations

import dataclasses
import functools
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from bertline.encoders.loading import LanguageModel, start_language_model, with_weights
from bertline.examples.store import ExampleStore, num_segments, token_counts
from bertline.foundation.errors import ArtifactError, ConfigError, MachineError
from bertline.foundation.files import drop_leftovers, sync_to_disk
from bertline.foundation.manifests import MANIFEST_NAME
from bertline.foundation.metrics_log import MetricsLog
from bertline.foundation.progress import say
from bertline.modeling.attention import attention_device
from bertline.modeling.bert import MaskedLanguageModel
from bertline.modeling.families import FAMILIES
from bertline.modeling.huggingface import MLM_HEAD, load_with_head
from bertline.modeling.initialization import initialize
from bertline.pretraining.config import PhaseConfig
from bertline.pretraining.data import read_examples_manifest
from bertline.pretraining.divergence import keep_health
from bertline.pretraining.job import PretrainJob, require_same
from bertline.pretraining.module import PretrainingModule
from bertline.pretraining.plan import Plan
from bertline.pretraining.probes import BestStep
from bertline.pretraining.result import write_model_folder
from bertline.pretraining.row_layout import pretraining_attention
from bertline.pretraining.start import (
    has_mlm_head,
    refuse_other_vocabulary,
    start_at_cooccurrences,
    start_at_unigrams,
    with_rows_of_tokens,
)
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.words import parts_of_new_tokens
from bertline.training.checkpoints import Checkpoint, CheckpointFolder
from bertline.training.clock import Lap, Seconds, TrainingClock
from bertline.training.devices import Machine, sum_over_ranks
from bertline.training.probe import Probe
from bertline.training.process_group import decide_on_first_rank
from bertline.training.saving import BackgroundWriter, HostCopy


def build_model(job: PretrainJob, tokenizer: Tokenizer, machine: Machine, *, resumes: bool = False) -> LanguageModel:
    """Build the model with the weights of a new training: those of `start_from_folder`, or random ones.

    Args:
        job: Model, objective and start.
        tokenizer: Tokenizer of the examples.
        machine: Device, for the attention kernel.
        resumes: Whether a checkpoint replaces all weights, so that none need be computed from the examples.

    Raises:
        ArtifactError: The examples were made with a vocabulary of another size, or for another objective.
        ConfigError: The checkpoint to start from has another shape or vocabulary, or the objective cannot learn from
            the examples in the steps of the phases.
    """
    examples = read_examples_manifest(job.examples_folder)
    if num_segments(examples) != job.objective.num_segments:
        raise ArtifactError(
            f"{job.examples_folder} has sequences of {num_segments(examples)} segment(s), objective.kind="
            f"{job.objective.kind} learns from {job.objective.num_segments}. Run the examples stage again with "
            f"examples={job.objective.examples}."
        )
    batch_sizes = [phase.global_batch_size for phase in job.pretrain.phases]
    sizes = {"num_layers": job.model.num_hidden_layers, "num_ranks": machine.ranks.world_size}
    problems = list(job.objective.problems(examples, batch_sizes, **sizes))
    if problems:
        raise ConfigError("\n".join(problems))
    encoded_with = examples["vocab_size"]
    if encoded_with != tokenizer.vocab_size:
        raise ArtifactError(
            f"{job.examples_folder} was made with a vocabulary of {encoded_with} tokens, {job.tokenizer_folder} has "
            f"{tokenizer.vocab_size}. Run the examples stage again."
        )
    if FAMILIES[job.model.family].wrapping is not None:
        return _wrapped(job, tokenizer)
    device = attention_device(machine.device, machine.precision)
    first_length = job.pretrain.phases[0].max_length
    model = job.objective.model_class()(
        job.model,
        vocab_size=tokenizer.vocab_size,
        pad_token_id=tokenizer.pad_id,
        attention=pretraining_attention(job.runtime, job.model, device, first_length).kind,
    )
    if job.start_from_folder is not None:
        _start_at_checkpoint(model, job, job.start_from_folder, tokenizer)
        return model
    initialize(model, job.model, seed=job.pretrain.seed)
    if job.pretrain.initial_embeddings is not None and not resumes:
        num_found = start_at_cooccurrences(model, _first_examples(job), seed=job.pretrain.seed)
        say(f"{num_found:,} of {tokenizer.vocab_size:,} word embeddings start from co-occurrences in the examples")
    return model


def _wrapped(job: PretrainJob, tokenizer: Tokenizer) -> LanguageModel:
    """Build the model of a wrapped family: from scratch or from a checkpoint, whose rows of embeddings all stay."""
    folder, seed = job.start_from_folder, job.pretrain.seed
    if folder is not None:
        refuse_other_vocabulary(job.model, folder, tokenizer)
    model = start_language_model(job.model, tokenizer, folder=folder, seed=seed)
    if folder is not None and not has_mlm_head(folder):
        _start_neutral(model, job, tokenizer)
    if folder is not None:
        say(f"pretraining starts from {folder}")
    return model


def _start_neutral(model: LanguageModel, job: PretrainJob, tokenizer: Tokenizer) -> None:
    """Let the masked language model head that a checkpoint lacks begin at the frequencies of the examples."""
    train = _first_examples(job)
    counts, special_ids = token_counts(train, tokenizer.vocab_size), tuple(train.manifest["special_ids"].values())
    start_at_unigrams(model, counts, special_ids, seed=job.pretrain.seed)
    say("the checkpoint has no masked language model head: it starts with the frequencies of the tokens")


def _start_at_checkpoint(model: MaskedLanguageModel, job: PretrainJob, folder: Path, tokenizer: Tokenizer) -> None:
    """Load the weights of the checkpoint, with new tokens and a head that it lacks."""
    refuse_other_vocabulary(job.model, folder, tokenizer)
    # Another head that the checkpoint lacks is initialised randomly, with a warning.
    starts_neutral = not has_mlm_head(folder)
    new_head = (MLM_HEAD,) if starts_neutral else ()
    start = load_with_head(folder, job.objective.model_class(), new_head=new_head)
    theirs = Tokenizer.load(folder)
    parts = parts_of_new_tokens(theirs, tokenizer)
    model.load_state_dict(with_rows_of_tokens(start.state_dict(), num_old=theirs.vocab_size, parts=parts))
    if parts:
        say(f"{len(parts):,} new tokens begin as the means of their old subwords")
    if padding := start.bert.vocab_size - theirs.vocab_size:
        say(f"{padding:,} rows of the checkpoint's embeddings that stand for no token are left out")
    if starts_neutral:
        _start_neutral(model, job, tokenizer)
    say(f"pretraining starts from {folder}")


def _first_examples(job: PretrainJob) -> ExampleStore:
    return ExampleStore.open(job.examples_folder, "train", job.pretrain.phases[0].max_length)


def find_checkpoint(job: PretrainJob, identity: dict[str, Any], machine: Machine) -> Checkpoint | None:
    """Return the checkpoint to resume from: this run's newest, else the last one of the run it extends, else None.

    The first rank chooses; the others load the same file, whatever they see in the folder. (A broadcast of the state
    would need it twice in the memory of each device; the file is read once per machine.)

    Raises:
        ConfigError: The checkpoint belongs to a different training, or the run cannot be extended by this job.
        MachineError: This rank does not see the checkpoint that the first one chose.
    """
    found: Checkpoint | None = None

    def choose() -> dict[str, Any] | None:
        nonlocal found
        found = _newest(job, identity)
        if found is None:
            return None
        extends = found.path.parent != job.checkpoints_folder
        return {
            "step": found.step,
            "digest": CheckpointFolder(found.path.parent, keep=1).digest(found.step),
            "extends": extends,
        }

    chosen = decide_on_first_rank(choose, machine.device)
    problem: MachineError | None = None
    if chosen is not None and found is None:
        extended = job.extend_from / "checkpoints" if chosen["extends"] and job.extend_from else job.checkpoints_folder
        try:
            folder = CheckpointFolder(extended, keep=1)
            found = folder.load_as_first_rank(chosen["step"], chosen["digest"], machine.ranks)
        except MachineError as error:
            problem = error
    if sum_over_ranks([problem is not None], machine.device)[0]:
        raise problem or MachineError("another rank does not see the checkpoint to resume from; its message says more.")
    return found


def _newest(job: PretrainJob, identity: dict[str, Any]) -> Checkpoint | None:
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


class Totals:
    """Sums over the whole run, across restarts: real tokens, and seconds of training, data waiting and pauses.

    Args:
        clock: Clock of this start.
        before: `as_mapping` from the checkpoint; checkpoints from before pauses were counted lack `paused_s`.
        row_before: `Lap.seconds` of the metrics row that the checkpoint interrupted.
    """

    def __init__(
        self, clock: TrainingClock, before: dict[str, float] | None = None, row_before: Seconds | None = None
    ) -> None:
        self._clock = clock
        self._before = {"tokens": 0.0, "train_time_s": 0.0, "data_wait_s": 0.0, "paused_s": 0.0, **(before or {})}
        self._paused_before_steps_s = 0.0
        self.tokens = self._before["tokens"]
        self.row = Lap(clock, row_before)
        """Seconds since the last row of metrics."""

    def begin_steps(self) -> None:
        """Exclude the pauses so far from `paused_s`: those before the first step happen once, later ones recur."""
        self._paused_before_steps_s = self._clock.seconds.paused_s

    @property
    def paused_s(self) -> float:
        """Seconds of pauses between steps, over the whole run."""
        return self._before["paused_s"] + self._clock.seconds.paused_s - self._paused_before_steps_s

    def as_mapping(self) -> dict[str, float]:
        """Return the totals as plain data for the checkpoint."""
        return {
            "tokens": self.tokens,
            "train_time_s": self._before["train_time_s"] + self._clock.trained_s,
            "data_wait_s": self._before["data_wait_s"] + self._clock.waited_s,
            "paused_s": self.paused_s,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingState:
    """Saves and restores everything that the rest of a training run depends on."""

    job: PretrainJob
    plan: Plan
    identity: dict[str, Any]
    """See `identity_of`."""
    module: PretrainingModule
    best: BestStep
    probes: Sequence[Probe]
    """All measurements during training, `best` first."""
    clock: TrainingClock
    """Measures the training time of this start."""
    totals: Totals
    rewinds: Sequence[Mapping[str, Any]]
    """Rollbacks of the run so far."""
    log: MetricsLog
    checkpoints: CheckpointFolder
    host_copy: HostCopy = dataclasses.field(default_factory=HostCopy)
    """Memory of the checkpoint that is being written."""
    writer: BackgroundWriter = dataclasses.field(default_factory=BackgroundWriter)
    """Writes checkpoints."""

    def restore(self, checkpoint: Checkpoint | None) -> None:
        """Restore the module and the records to the state of the checkpoint; None starts from scratch."""
        is_first_rank = self.module.machine.ranks.is_first
        if is_first_rank:
            self.job.run_folder.mkdir(parents=True, exist_ok=True)
            self._take_over_records()
        if checkpoint is not None:
            state = checkpoint.state
            self.module.model.load_state_dict(state["model"])
            self.module.optimizer_state = state["optimizer"]
            self.module.interval.restore(state["interval"], is_first_rank=is_first_rank)
            self.module.finished_steps = checkpoint.step
            self.module.frozen_layout = state.get("frozen_layout")
            # Losses over other sequences are not comparable. The best checkpoint may be gone, superseded by a newer one
            # that is now damaged; training will beat it again.
            compares = state["identity"]["pretrain"]["validation_sequences"] == self.job.pretrain.validation_sequences
            best = state.get("best")
            kept = decide_on_first_rank(lambda: self.checkpoints.steps, self.module.machine.device)
            self.best.restore(best if best and compares and best["step"] in kept else None)
        # A new run drops even the rows of step 0: they are written again.
        step = checkpoint.step if checkpoint else -1
        if is_first_rank:
            for path in self.job.written_atomically:
                drop_leftovers(path)
            self.log.keep_up_to(step)
            keep_health(self.job.health_path, step, self.rewinds)
        for probe in self.probes:
            probe.keep_up_to(step)

    def _take_over_records(self) -> None:
        """Copy the records of the run that this one extends, so that its curves are complete."""
        if self.job.extend_from is None or self.job.checkpoints_folder.exists():
            return
        for path in self.job.records:
            source = self.job.extend_from / path.name
            if source.exists():
                shutil.copyfile(source, path)

    def save(self, *, wait: bool = False) -> None:
        """Save a checkpoint and a model folder of the newest weights. Called on all ranks; the first one writes.

        Args:
            wait: Whether to return only when they are on disk. Otherwise only a copy is made in memory; an error is
                raised by the next call of this or of a method of `writer`.
        """
        module = self.module
        interval = module.interval.total()
        if not module.machine.ranks.is_first:
            return
        self.writer.wait()  # its copy is overwritten now
        optimizer = module.optimizers(use_pl_optimizer=False)
        assert isinstance(optimizer, torch.optim.Optimizer)  # there is exactly one optimizer
        step, place = module.finished_steps, self.plan.place(module.finished_steps)
        state = {
            "step": step,
            "place": {"phase": place.phase, "consumed": place.consumed},
            "model": module.model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "frozen_layout": module.frozen_layout,
            "interval": interval,
            "interval_s": dataclasses.asdict(self.totals.row.seconds),
            "best": self.best.as_mapping(),
            "totals": self.totals.as_mapping(),
            "rewinds": list(self.rewinds),
            "identity": self.identity,
        }
        copied = self.host_copy.take(state)
        model = with_weights(module.model, copied["model"])
        self.writer.start(functools.partial(self._write, step, copied, model=model, best_step=self.best.step))
        if wait:
            self.writer.wait()

    def _write(self, step: int, state: dict[str, Any], *, model: LanguageModel, best_step: int | None) -> None:
        # A resumed run relies on the records up to the checkpoint's step, so they are synced to disk first.
        for path in self.job.records:
            sync_to_disk(path)
        self.checkpoints.save(step, state, best_step=best_step)
        write_model_folder(self.job, model, self.job.latest_folder)
