"""Pretraining from start or restart to result."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import pytorch_lightning as pl
import torch

from bertline.foundation.files import drop_leftovers, sync_to_disk
from bertline.foundation.metrics_log import MetricsLog
from bertline.foundation.progress import say
from bertline.modeling.attention import attention_device
from bertline.pretraining.attention_by_length import AttentionByLength
from bertline.pretraining.best import BestStep
from bertline.pretraining.callbacks import RecordMetrics, RunProbes, SaveAndStop, Totals
from bertline.pretraining.data import MaskedExamples, PretrainingData
from bertline.pretraining.divergence import DivergenceGuard, keep_health, roll_back, skipped_in
from bertline.pretraining.identity import identity_of, same_measure
from bertline.pretraining.job import PretrainJob
from bertline.pretraining.mask_predictions import MaskPredictionProbe
from bertline.pretraining.module import PretrainingModule
from bertline.pretraining.objectives.registry import build_objective
from bertline.pretraining.plan import Plan
from bertline.pretraining.profiling import ProfileSteps
from bertline.pretraining.result import write_best, write_latest, write_result
from bertline.pretraining.row_layout import layouts_in_words, pretraining_attention, row_layouts
from bertline.pretraining.start import build_model, find_checkpoint, take_over_records
from bertline.pretraining.time_left import TimeLeft, work_of_sequences
from bertline.pretraining.validation import ValidationProbe
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.checkpoints import Checkpoint, CheckpointFolder
from bertline.training.clock import Seconds, TrainingClock
from bertline.training.compiling import compile_in_place
from bertline.training.devices import Machine, resolve_machine
from bertline.training.distributed import leave_process_group, sum_over_ranks
from bertline.training.interruption import StopRequest, TrainingInterrupted
from bertline.training.probe import MakeProbe, Probe
from bertline.training.progress import TrainingProgress
from bertline.training.trainer import build_trainer, fit

__all__ = ["PretrainJob", "run_pretraining"]


def run_pretraining(
    job: PretrainJob, *, make_probes: Sequence[MakeProbe] = (), callbacks: Sequence[pl.Callback] = ()
) -> dict[str, float]:
    """Pretrain, or resume a pretraining that was stopped or killed.

    Args:
        job: Configuration, inputs and run folder.
        make_probes: Factories of additional probes; they run after validation and mask predictions.
        callbacks: Additional callbacks, called after bertline's own between two steps, for example by benchmarks.

    Returns:
        Headline figures, as in the manifest of `result/`; empty on ranks other than the first.

    Raises:
        ConfigError: The job does not fit its inputs, or the run folder holds a different training.
        MachineError: The machine lacks what the runtime section requests.
        TrainingInterrupted: A signal stopped training; the next call resumes it.
        TrainingDivergedError: Training failed again after the allowed number of rollbacks.
    """
    machine = resolve_machine(job.runtime, job.pretrain.precision)
    run = _Run(job, machine, make_probes, callbacks)
    while run.module.finished_steps < run.plan.num_steps:
        rewinds = run.train()
        if rewinds is not None:
            run = _Run(job, machine, make_probes, callbacks, rewinds)
    if not machine.ranks.is_first:
        return {}
    run.write_best()
    return write_result(job, run.module.model, run.identity, totals=run.totals.as_mapping(), best=run.best.as_mapping())


class _Run:
    """Components of one start of a run.

    Args:
        job: Configuration, inputs and run folder.
        machine: Device, precision and ranks.
        make_probes: See `run_pretraining`.
        callbacks: See `run_pretraining`.
        rewinds: Rollbacks of the run so far; None: those recorded in the checkpoint.
    """

    def __init__(
        self,
        job: PretrainJob,
        machine: Machine,
        make_probes: Sequence[MakeProbe],
        callbacks: Sequence[pl.Callback],
        rewinds: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        self.job = job
        self.callbacks = callbacks
        self.machine = machine
        self.plan = Plan.of(job.pretrain)
        device = attention_device(machine.device, machine.precision)
        self.attention = {
            length: pretraining_attention(job.runtime, job.model, device, length) for length in self.plan.lengths
        }
        self.clock = TrainingClock()
        self.log = MetricsLog(job.metrics_path)
        self.tokenizer = Tokenizer.load(job.tokenizer_folder)
        self.identity = identity_of(job, machine.precision)
        self.checkpoints = CheckpointFolder(job.checkpoints_folder, keep=job.pretrain.keep_checkpoints)
        checkpoint = find_checkpoint(job, self.identity)
        self.plan.require_shares(machine.ranks, first_step=checkpoint.step if checkpoint else 0)
        objective = build_objective(job.objective)
        self.module = PretrainingModule(
            build_model(job, self.tokenizer, machine),
            objective,
            job.optimizer,
            job.schedule,
            machine=machine,
            seed=job.pretrain.seed,
            num_steps=self.plan.num_steps,
        )
        self.best = BestStep(self._build_validation(), self.plan, judged_by=objective.judged_by)
        handed_in = [make(self.module.model, machine) for make in make_probes]
        self.probes = [self.best, self._build_mask_predictions(), *handed_in]
        state = checkpoint.state if checkpoint else {}
        self.totals = Totals(self.clock, state.get("totals"), Seconds(**state.get("interval_s", {})))
        of_checkpoint = checkpoint.state.get("rewinds", []) if checkpoint else []
        self.rewinds = of_checkpoint if rewinds is None else rewinds
        self.plan.skipped = tuple(skipped_in(self.rewinds))
        self._restore(checkpoint)

    def train(self) -> list[dict[str, Any]] | None:
        """Take the remaining steps and return None; on divergence, return the rewinds to restart with."""
        job, num_steps = self.job, self.plan.num_steps
        data = self._build_data()
        data.first_step = self.module.finished_steps
        if self.machine.compile:
            compile_in_place(self.module.losses)
        progress = TrainingProgress(
            "pretraining",
            first_step=data.first_step,
            num_steps=num_steps,
            every_s=job.runtime.progress_every_s,
            shown=self.machine.ranks.is_first,
        )
        left = TimeLeft(self.plan, work_of_sequences(self.module.model, data.dataset.examples, data.dataset.layouts))
        guard, request = DivergenceGuard(job, self.plan, self.machine, self.rewinds), StopRequest()
        saving = SaveAndStop(
            self._save,
            request,
            self.clock,
            self.best,
            guard,
            every_steps=job.pretrain.checkpoint_every_steps,
            num_steps=num_steps,
        )
        profiles = [ProfileSteps(job.profile_folder, self.clock, num_steps=num_steps)] if job.runtime.profile else []
        callbacks = [
            *profiles,
            AttentionByLength(self.attention),
            RecordMetrics(self.log, self.clock, self.totals, progress, left, guard, num_steps=num_steps),
            RunProbes(self.probes, self.log, self.clock, num_steps=num_steps),
            saving,
            *self.callbacks,
        ]
        trainer = build_trainer(self.machine, job.runtime, callbacks=callbacks, max_epochs=1, root=job.run_folder)
        with progress:
            self.clock.start()
            fit(trainer, self.module, data)
        self.log.close()
        if guard.failure is not None and not sum_over_ranks([request.made], self.machine.device)[0]:
            return roll_back(job, self.plan, self.checkpoints, self.rewinds, guard.failure, machine=self.machine)
        leave_process_group()
        if guard.failure is not None:
            raise TrainingInterrupted(f"pretraining was stopped in {job.run_folder}; run it again to resume")
        if saving.stopped:
            raise TrainingInterrupted(
                f"pretraining was stopped and saved after step {self.module.finished_steps:,} of {num_steps:,} in "
                f"{job.run_folder}; run it again to resume"
            )
        return None

    def _build_data(self) -> PretrainingData:
        job = self.job
        examples = {length: MaskedExamples(job.examples_folder, "train", length) for length in self.plan.lengths}
        stores = {length: of_length.store for length, of_length in examples.items()}
        layouts = row_layouts(job.runtime, stores, self.attention)
        if self.machine.ranks.is_first:
            device = attention_device(self.machine.device, self.machine.precision)
            say(f"pretraining {layouts_in_words(layouts, stores, self.attention, job.model, device)}")
        return PretrainingData(
            examples,
            layouts,
            self.plan,
            num_workers=job.runtime.num_workers,
            machine=self.machine,
            seed=job.pretrain.seed,
            clock=self.clock,
        )

    def write_best(self) -> None:
        """Write a model folder of the best step, unless that is the last step, whose model is the result."""
        step = self.best.step
        if step is None or step == self.plan.num_steps:
            shutil.rmtree(self.job.best_folder, ignore_errors=True)  # left by an earlier run in this folder
        elif (checkpoint := self.checkpoints.load(step)) is not None:
            write_best(self.job, self.module.model, checkpoint)

    def _build_validation(self) -> Probe:
        job = self.job
        return ValidationProbe(
            self.module.losses,
            job.examples_folder,
            self.plan,
            machine=self.machine,
            every_steps=job.pretrain.validate_every_steps,
            max_sequences=job.pretrain.validation_sequences,
        )

    def _build_mask_predictions(self) -> Probe:
        job = self.job
        return MaskPredictionProbe(
            self.module.model,
            self.module.objective,
            self.tokenizer,
            job.pretrain.mask_predictions,
            job.mask_predictions_path,
            machine=self.machine,
        )

    def _restore(self, checkpoint: Checkpoint | None) -> None:
        """Restore the module and the records to the state of the checkpoint."""
        take_over_records(self.job, is_first_rank=self.machine.ranks.is_first)
        if checkpoint is not None:
            state = checkpoint.state
            self.module.model.load_state_dict(state["model"])
            self.module.optimizer_state = state["optimizer"]
            self.module.interval_state = state["interval"]
            self.module.finished_steps = checkpoint.step
        best = checkpoint.state.get("best") if checkpoint else None
        # The best checkpoint may be gone, superseded by a newer one that is now damaged; training will beat it again.
        compares = checkpoint is not None and same_measure(checkpoint.state["identity"], self.identity)
        self.best.restore(best if best and compares and best["step"] in self.checkpoints.steps else None)
        # A new run drops even the rows of step 0: they are written again.
        step = checkpoint.step if checkpoint else -1
        if self.machine.ranks.is_first:
            self.job.run_folder.mkdir(parents=True, exist_ok=True)
            for path in self.job.written_atomically:
                drop_leftovers(path)
            self.log.keep_up_to(step)
            keep_health(self.job.health_path, step, self.rewinds)
        for probe in self.probes:
            probe.keep_up_to(step)

    def _save(self, module: PretrainingModule) -> None:
        """Save a checkpoint and a model folder of the newest weights. Called on all ranks; the first one writes."""
        interval = module.interval.total()
        if not self.machine.ranks.is_first:
            return
        # A resumed run relies on the records up to the checkpoint's step, so they are synced to disk first.
        for path in (self.job.metrics_path, self.job.mask_predictions_path, self.job.health_path):
            sync_to_disk(path)
        self.checkpoints.save(module.finished_steps, self._state(module, interval), best_step=self.best.step)
        write_latest(self.job, module.model)

    def _state(self, module: PretrainingModule, interval: dict[str, float]) -> dict[str, Any]:
        optimizer = module.optimizers(use_pl_optimizer=False)
        assert isinstance(optimizer, torch.optim.Optimizer)  # there is exactly one optimizer
        place = self.plan.place(module.finished_steps)
        return {
            "step": module.finished_steps,
            "place": {"phase": place.phase, "consumed": place.consumed},
            "model": module.model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "interval": interval,
            "interval_s": dataclasses.asdict(self.totals.row.seconds),
            "best": self.best.as_mapping(),
            "totals": self.totals.as_mapping(),
            "rewinds": list(self.rewinds),
            "identity": self.identity,
        }
