"""The state of a training run: what a checkpoint holds, and how a run resumes from it."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from bertline.foundation.files import drop_leftovers, sync_to_disk
from bertline.foundation.metrics_log import MetricsLog
from bertline.pretraining.divergence import keep_health
from bertline.pretraining.job import PretrainJob
from bertline.pretraining.module import PretrainingModule
from bertline.pretraining.plan import Plan
from bertline.pretraining.probes import BestStep
from bertline.pretraining.result import write_model_folder
from bertline.training.checkpoints import Checkpoint, CheckpointFolder
from bertline.training.clock import Lap, Seconds, TrainingClock
from bertline.training.probe import Probe


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
            # Losses over other sequences are not comparable. The best checkpoint may be gone, superseded by a newer one
            # that is now damaged; training will beat it again.
            compares = state["identity"]["pretrain"]["validation_sequences"] == self.job.pretrain.validation_sequences
            best = state.get("best")
            self.best.restore(best if best and compares and best["step"] in self.checkpoints.steps else None)
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

    def save(self) -> None:
        """Save a checkpoint and a model folder of the newest weights. Called on all ranks; the first one writes."""
        module = self.module
        interval = module.interval.total()
        if not module.machine.ranks.is_first:
            return
        # A resumed run relies on the records up to the checkpoint's step, so they are synced to disk first.
        for path in self.job.records:
            sync_to_disk(path)
        optimizer = module.optimizers(use_pl_optimizer=False)
        assert isinstance(optimizer, torch.optim.Optimizer)  # there is exactly one optimizer
        place = self.plan.place(module.finished_steps)
        state = {
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
        self.checkpoints.save(module.finished_steps, state, best_step=self.best.step)
        write_model_folder(self.job, module.model, self.job.latest_folder)
