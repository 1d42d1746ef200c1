"""Pretraining, from configuration to result: builds tokenizer, model, probes, data and trainer in order, then trains.

A step is `pretraining.module`, its loss `Objective.loss`, its batch `pretraining.data`. What happens between two steps
is in `callbacks`; alarms are in `health`.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pytorch_lightning as pl

from bertline.foundation.metrics_log import MetricsLog
from bertline.foundation.progress import say, warn
from bertline.foundation.work import Work
from bertline.modeling.attention import attention_device
from bertline.modeling.families import FAMILIES
from bertline.pretraining.callbacks import Checkpointing, Probing, Rehearsal, Throughput, TimeLeft
from bertline.pretraining.checkpoint import TrainingState, find_checkpoint
from bertline.pretraining.data import MaskedExamples, StepDataset, StepLoader
from bertline.pretraining.health import HealthMonitor
from bertline.pretraining.job import PretrainJob, headline_figures, identity_of, write_result
from bertline.pretraining.module import PretrainingModule
from bertline.pretraining.plan import Plan, layouts_in_words, resumed_layout, row_layouts
from bertline.pretraining.probes import HeadProbe, MaskPredictionProbe, Probe, ValidationProbe
from bertline.pretraining.start import build_model
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.checkpoints import CheckpointFolder
from bertline.training.devices import Machine, compile_in_place, resolve_machine
from bertline.training.interruption import StopRequest, TrainingInterrupted
from bertline.training.process_group import process_group
from bertline.training.progress import Seconds, TrainingClock, TrainingProgress
from bertline.training.trainer import build_trainer, run_trainer

__all__ = ["PretrainJob", "run", "run_pretraining"]


def run(work: Work) -> dict[str, float]:
    """Do the work of the stage `pretrain`; see `run_pretraining`."""
    return run_pretraining(PretrainJob.of(work))


def run_pretraining(job: PretrainJob, *, callbacks: Sequence[pl.Callback] = ()) -> dict[str, float]:
    """Pretrain, or resume a pretraining that was stopped or killed; return the headline figures (of the first rank).

    `callbacks` are called after bertline's own between two steps, for example by benchmarks.

    Raises:
        ConfigError: The job does not fit its inputs, or the run folder holds a different training.
        MachineError: The machine lacks what the runtime section requests, or another rank is lost.
        TrainingInterrupted: A signal stopped training; the next call resumes it.
        TrainingDivergedError: Gradients, the loss or weights are infinite or NaN.
    """
    machine = resolve_machine(job.runtime, job.pretrain.precision)
    with process_group(machine, job.runtime.peer_timeout_s):
        state = _built(job, machine)
        if state.module.finished_steps < state.plan.num_steps:
            _train(state, callbacks)
    if not machine.ranks.is_first:
        return {}
    model = state.module.model
    figures = headline_figures(job, model, state.clock.seconds, state.num_tokens)
    write_result(job, model, figures, identity=state.identity)
    return figures


def _built(job: PretrainJob, machine: Machine) -> TrainingState:
    """Build what training changes, restored to the newest checkpoint."""
    config, plan = job.pretrain, Plan.of(job.pretrain)
    identity = identity_of(job, machine.precision)
    checkpoint = find_checkpoint(job, identity, machine)
    plan.require_shares(machine.ranks, first_step=checkpoint.step if checkpoint else 0)
    saved = checkpoint.state if checkpoint else {}

    tokenizer = Tokenizer.load(job.tokenizer_folder)
    model = build_model(job, tokenizer, machine, resumes=checkpoint is not None)
    module = PretrainingModule(model, job, machine)
    every_steps, max_sequences = config.validate_every_steps, config.validation_sequences
    probes: list[Probe] = [
        ValidationProbe(module.losses, job.examples_folder, plan, machine, every_steps, max_sequences),
        MaskPredictionProbe(model, tokenizer, config.mask_predictions, job.mask_predictions_path, machine),
    ]
    if config.head_probe is not None:
        probes.append(HeadProbe(model, tokenizer, config.head_probe, max(plan.lengths), machine))
    state = TrainingState(
        job=job,
        plan=plan,
        identity=identity,
        module=module,
        probes=probes,
        clock=TrainingClock(Seconds(**saved.get("seconds", {}))),
        row_begun=Seconds(**saved.get("row_begun", {})),
        num_tokens=saved.get("num_tokens", 0.0),
        log=MetricsLog(job.metrics_path),
        checkpoints=CheckpointFolder(job.checkpoints_folder, keep=config.keep_checkpoints),
    )
    state.restore(checkpoint)
    return state


def _train(state: TrainingState, extra_callbacks: Sequence[pl.Callback]) -> None:
    """Take the remaining steps."""
    job, plan, module = state.job, state.plan, state.module
    machine, first_step, num_steps = module.machine, module.finished_steps, plan.num_steps
    dataset = _steps(job, plan, module)
    # Wrapped models run as they are: the compiler gains little there and takes minutes.
    if machine.compile and FAMILIES[job.model.family].can("compiler"):
        compile_in_place(module.losses)
    progress = TrainingProgress(
        "pretraining",
        first_step=first_step,
        num_steps=num_steps,
        every_s=job.runtime.progress_every_s,
        shown=machine.ranks.is_first,
        score=(f"train/{job.objective.metrics[0].name}", "accuracy"),
    )
    monitor, checkpointing = HealthMonitor.of(job, plan), Checkpointing(state=state, request=StopRequest())
    callbacks = [
        Rehearsal(dataset),
        Throughput(state=state, monitor=monitor, progress=progress, time_left=TimeLeft(plan)),
        Probing(state=state),
        checkpointing,
        *extra_callbacks,
    ]
    trainer = build_trainer(
        machine, job.runtime, callbacks=callbacks, max_epochs=1, root=job.run_folder, profiled=job.runtime.profile
    )
    steps = StepLoader(dataset, machine, state.clock, num_workers=job.runtime.num_workers, first_step=first_step)
    try:
        with progress:
            run_trainer(trainer, module, steps)
    except BaseException:
        with suppress(Exception):  # of this error, the one that it may bring is a consequence
            state.writer.wait()
        raise
    state.writer.wait()
    if checkpointing.stopped:
        step = f"step {module.finished_steps:,} of {num_steps:,}"
        raise TrainingInterrupted(f"pretraining was stopped and saved after {step} in {job.run_folder}")


def _steps(job: PretrainJob, plan: Plan, module: PretrainingModule) -> StepDataset:
    """Build the batches of all steps: examples in their order, masked on the fly, packed into rows if that pays."""
    machine, ranks = module.machine, module.machine.ranks
    examples = MaskedExamples.by_length(job.examples_folder, "train", plan.lengths, job.objective)
    fills = {length: one.fill for length, one in examples.items()}
    device = attention_device(machine.device, machine.precision)
    can_pack = FAMILIES[job.model.family].can("packing")
    runtime = job.runtime if can_pack else replace(job.runtime, packing="off")
    layouts = row_layouts(runtime, job.model, device, fills)
    layouts, module.frozen_layout, warning = resumed_layout(
        module.frozen_layout, layouts, model=job.model, device=machine.device.type, num_ranks=ranks.world_size
    )
    module.attention_kinds = {length: layout.attention.kind for length, layout in layouts.items()}
    if ranks.is_first:
        if warning is not None:
            warn(f"{job.run_folder}: {warning}")
        say(f"pretraining {layouts_in_words(layouts, fills, job.model, device)}")
    return StepDataset(plan, examples, layouts, ranks=ranks, seed=job.pretrain.seed)
