"""The state of a training run: what a checkpoint holds, and how a run resumes from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from bertline.foundation.files import drop_leftovers, sync_to_disk
from bertline.foundation.metrics_log import MetricsLog
from bertline.pretraining.callbacks import Totals
from bertline.pretraining.divergence import keep_health
from bertline.pretraining.job import PretrainJob, same_measure
from bertline.pretraining.module import PretrainingModule
from bertline.pretraining.plan import Plan
from bertline.pretraining.result import write_latest
from bertline.pretraining.start import take_over_records
from bertline.pretraining.validation import BestStep
from bertline.training.checkpoints import Checkpoint, CheckpointFolder
from bertline.training.probe import Probe


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingState:
    """Saves and restores everything that the rest of a training run depends on."""

    job: PretrainJob
    plan: Plan
    identity: dict[str, Any]
    """See `identity_of`."""
    module: PretrainingModule
    best: BestStep
    totals: Totals
    rewinds: Sequence[Mapping[str, Any]]
    """Rollbacks of the run so far."""
    log: MetricsLog
    checkpoints: CheckpointFolder

    def restore(self, checkpoint: Checkpoint | None, probes: Sequence[Probe]) -> None:
        """Restore the module and the records to the state of the checkpoint; None starts from scratch."""
        is_first_rank = self.module.machine.ranks.is_first
        take_over_records(self.job, is_first_rank=is_first_rank)
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
        if is_first_rank:
            self.job.run_folder.mkdir(parents=True, exist_ok=True)
            for path in self.job.written_atomically:
                drop_leftovers(path)
            self.log.keep_up_to(step)
            keep_health(self.job.health_path, step, self.rewinds)
        for probe in probes:
            probe.keep_up_to(step)

    def save(self, module: PretrainingModule) -> None:
        """Save a checkpoint and a model folder of the newest weights. Called on all ranks; the first one writes."""
        interval = module.interval.total()
        if not module.machine.ranks.is_first:
            return
        # A resumed run relies on the records up to the checkpoint's step, so they are synced to disk first.
        for path in (self.job.metrics_path, self.job.mask_predictions_path, self.job.health_path):
            sync_to_disk(path)
        self.checkpoints.save(module.finished_steps, self._as_mapping(interval), best_step=self.best.step)
        write_latest(self.job, module.model)

    def _as_mapping(self, interval: dict[str, float]) -> dict[str, Any]:
        module = self.module
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
