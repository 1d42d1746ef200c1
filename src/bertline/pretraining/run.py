"""Pretraining from start, or restart, to result."""

from __future__ import annotations

from typing import Any

import torch

from bertline.foundation.metrics_log import MetricsLog
from bertline.pretraining.callbacks import RecordMetrics, RunProbes, SaveAndStop, Totals
from bertline.pretraining.data import PretrainingData
from bertline.pretraining.film_strip import FilmStripProbe
from bertline.pretraining.identity import identity_of
from bertline.pretraining.job import PretrainJob
from bertline.pretraining.module import PretrainingModule
from bertline.pretraining.plan import Plan
from bertline.pretraining.result import write_latest, write_result
from bertline.pretraining.start import build_model, find_checkpoint, take_over_records
from bertline.pretraining.validation import ValidationProbe
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.checkpoints import Checkpoint, CheckpointFolder
from bertline.training.clock import TrainingClock
from bertline.training.compiling import compile_in_place
from bertline.training.devices import Machine, resolve_machine
from bertline.training.distributed import leave_process_group
from bertline.training.interruption import StopRequest, TrainingInterrupted
from bertline.training.probe import Probe
from bertline.training.progress import TrainingProgress
from bertline.training.trainer import build_trainer, fit

__all__ = ["PretrainJob", "run_pretraining"]


def run_pretraining(job: PretrainJob) -> dict[str, float]:
    """Pretrain, or go on with a pretraining that was stopped or killed.

    Returns:
        The headline figures, as in the manifest of `result/`; nothing on ranks other than the first.

    Raises:
        ConfigError: The job does not fit its inputs, or the run folder holds another training.
        MachineError: The machine lacks what the runtime section asks for.
        TrainingInterrupted: A signal came; the place is saved.
    """
    machine = resolve_machine(job.runtime, job.pretrain.precision)
    run = _Run(job, machine)
    if run.module.finished_steps < run.plan.num_steps:
        run.train()
    if not machine.ranks.is_first:
        return {}
    return write_result(job, run.module.model, run.identity, run.totals.as_mapping())


class _Run:
    """The parts of one start of a run, put together."""

    def __init__(self, job: PretrainJob, machine: Machine) -> None:
        self.job = job
        self.machine = machine
        self.plan = Plan.of(job.pretrain)
        self.clock = TrainingClock()
        self.log = MetricsLog(job.metrics_path)
        self.tokenizer = Tokenizer.load(job.tokenizer_folder)
        self.identity = identity_of(job, machine.precision)
        self.checkpoints = CheckpointFolder(job.checkpoints_folder, keep=job.pretrain.keep_checkpoints)
        self.module = PretrainingModule(
            build_model(job, self.tokenizer, machine),
            job.objective,
            job.optimizer,
            job.schedule,
            machine=machine,
            seed=job.pretrain.seed,
            num_steps=self.plan.num_steps,
        )
        self.probes = self._build_probes()
        checkpoint = find_checkpoint(job, self.identity)
        self.totals = Totals(self.clock, checkpoint.state["totals"] if checkpoint else None)
        self._restore(checkpoint)

    def train(self) -> None:
        """Take the remaining steps."""
        job, num_steps = self.job, self.plan.num_steps
        data = PretrainingData(
            job.examples_folder,
            self.plan,
            runtime=job.runtime,
            machine=self.machine,
            seed=job.pretrain.seed,
            clock=self.clock,
        )
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
        saving = SaveAndStop(
            self._save, StopRequest(), self.clock, every_steps=job.pretrain.checkpoint_every_steps, num_steps=num_steps
        )
        callbacks = [
            RecordMetrics(self.log, self.clock, self.totals, progress, num_steps=num_steps),
            RunProbes(self.probes, self.log, self.clock, num_steps=num_steps),
            saving,
        ]
        trainer = build_trainer(self.machine, job.runtime, callbacks=callbacks, max_epochs=1, root=job.run_folder)
        with progress:
            self.clock.start()
            fit(trainer, self.module, data)
        self.log.close()
        leave_process_group()
        if saving.stopped:
            raise TrainingInterrupted(
                f"pretraining was stopped and saved after step {self.module.finished_steps:,} of {num_steps:,} in "
                f"{job.run_folder}; run it again to go on"
            )

    def _build_probes(self) -> list[Probe]:
        job = self.job
        validation = ValidationProbe(
            self.module.losses,
            job.examples_folder,
            self.plan,
            machine=self.machine,
            every_steps=job.pretrain.validate_every_steps,
            max_sequences=job.pretrain.validation_sequences,
        )
        film_strip = FilmStripProbe(
            self.module.model, self.tokenizer, job.pretrain.film_strip, job.film_strip_path, machine=self.machine
        )
        return [validation, film_strip]

    def _restore(self, checkpoint: Checkpoint | None) -> None:
        """Put the module and the records where the checkpoint left them."""
        take_over_records(self.job, is_first_rank=self.machine.ranks.is_first)
        if checkpoint is not None:
            state = checkpoint.state
            self.module.model.load_state_dict(state["model"])
            self.module.optimizer_state = state["optimizer"]
            self.module.interval_state = state["interval"]
            self.module.finished_steps = checkpoint.step
        # A new run drops even the rows of step 0: they are written again.
        step = checkpoint.step if checkpoint else -1
        if self.machine.ranks.is_first:
            self.job.run_folder.mkdir(parents=True, exist_ok=True)
            self.log.keep_up_to(step)
        for probe in self.probes:
            probe.keep_up_to(step)

    def _save(self, module: PretrainingModule) -> None:
        """Save a checkpoint and the newest weights as a model folder. Called on all ranks; the first one writes."""
        interval = module.interval.total()
        if not self.machine.ranks.is_first:
            return
        self.checkpoints.save(module.finished_steps, self._state(module, interval))
        write_latest(self.job, module.model)

    def _state(self, module: PretrainingModule, interval: dict[str, float]) -> dict[str, Any]:
        optimizer = module.optimizers(use_pl_optimizer=False)
        assert isinstance(optimizer, torch.optim.Optimizer)  # there is one
        place = self.plan.place(module.finished_steps)
        return {
            "step": module.finished_steps,
            "place": {"phase": place.phase, "consumed": place.consumed},
            "model": module.model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "interval": interval,
            "totals": self.totals.as_mapping(),
            "identity": self.identity,
        }
