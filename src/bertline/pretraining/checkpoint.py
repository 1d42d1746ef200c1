"""Checkpoints of a run: what they hold, and which one it resumes from."""

import dataclasses
import functools
import socket
import time
from collections.abc import Sequence
from typing import Any

from bertline.encoders.loading import LanguageModel, with_weights
from bertline.foundation.errors import MachineError
from bertline.foundation.files import drop_leftovers, folder_written_atomically, keep_json_lines, sync_to_disk
from bertline.foundation.metrics_log import MetricsLog
from bertline.foundation.progress import say
from bertline.pretraining.job import PretrainJob, require_same, write_model
from bertline.pretraining.module import PretrainingModule
from bertline.pretraining.plan import Plan
from bertline.pretraining.probes import Probe
from bertline.training.checkpoints import BackgroundWriter, CheckpointFolder, SavedStep, on_host
from bertline.training.devices import Machine
from bertline.training.process_group import decide_on_first_rank
from bertline.training.progress import Seconds, TrainingClock

# File systems that machines share may show a new file some seconds later (NFS caches a folder for up to 60 s).
_VISIBLE_WITHIN_S = 90.0


def find_checkpoint(job: PretrainJob, identity: dict[str, Any], machine: Machine) -> SavedStep | None:
    """Return the checkpoint to resume from: this run's newest; None if there is none.

    The first rank chooses; the others load the same file, whatever they see in the folder.

    Raises:
        ConfigError: The checkpoint belongs to a different training.
        MachineError: This rank does not see the checkpoint that the first one chose.
    """
    folder, ranks = CheckpointFolder(job.checkpoints_folder, keep=job.pretrain.keep_checkpoints), machine.ranks
    newest: SavedStep | None = None

    def choose() -> int | None:
        nonlocal newest
        newest = folder.load_newest()
        if newest is None:
            return None
        require_same(newest.state["identity"], identity, where=str(job.run_folder))
        if newest.step < job.pretrain.num_steps:
            say(f"pretraining resumes after step {newest.step:,} of {job.pretrain.num_steps:,}")
        return newest.step

    step = decide_on_first_rank(choose, machine.device)
    if step is None or ranks.is_first:
        return newest
    end = time.monotonic() + _VISIBLE_WITHIN_S
    while step not in folder.steps and time.monotonic() < end:
        time.sleep(0.5)
    if (checkpoint := folder.load(step)) is None:
        raise MachineError(
            f"rank {ranks.rank} on {socket.gethostname()} does not see the checkpoint of step {step:,} in "
            f"{folder.folder} as the first rank does, which resumes from it. All ranks need the same run folder: put "
            "runtime.runs_folder on a file system that every machine shares, and start all again."
        )
    return checkpoint


@dataclasses.dataclass(kw_only=True, eq=False)
class TrainingState:
    """Saves and restores everything that the rest of a training run depends on."""

    job: PretrainJob
    plan: Plan
    identity: dict[str, Any]
    module: PretrainingModule
    probes: Sequence[Probe]
    """All measurements during training."""
    clock: TrainingClock
    row_begun: Seconds
    """The clock at the last row of metrics."""
    num_tokens: float
    """Number of real tokens up to the last row of metrics, over the whole run."""
    log: MetricsLog
    checkpoints: CheckpointFolder
    writer: BackgroundWriter = dataclasses.field(default_factory=BackgroundWriter)

    def restore(self, checkpoint: SavedStep | None) -> None:
        """Restore the module and the records to the state of the checkpoint; None starts from scratch."""
        is_first_rank = self.module.machine.ranks.is_first
        if is_first_rank:
            self.job.run_folder.mkdir(parents=True, exist_ok=True)
        if checkpoint is not None:
            state = checkpoint.state
            self.module.model.load_state_dict(state["model"])
            self.module.optimizer_state = state["optimizer"]
            self.module.interval.restore(state["interval"], is_first_rank=is_first_rank)
            self.module.finished_steps = checkpoint.step
            self.module.frozen_layout = state["frozen_layout"]
        # A new run drops even the rows of step 0: they are written again.
        step = checkpoint.step if checkpoint else -1
        if is_first_rank:
            for path in (*self.job.logs, self.job.latest_folder, self.job.result_folder):
                drop_leftovers(path)  # of a kill
            self.log.keep_up_to(step)
            for path in (self.job.mask_predictions_path, self.job.health_path):
                keep_json_lines(path, lambda row: row["step"] <= step)

    def save(self, *, wait: bool = False) -> None:
        """Save a checkpoint and a model folder of the newest weights. Called on all ranks; the first one writes.

        Without `wait` only a copy is made in memory; an error is raised by the next call of this or of `writer`.
        """
        module = self.module
        interval = module.interval.total()
        if not module.machine.ranks.is_first:
            return
        self.writer.wait()  # so that there is one copy at a time
        step, place = module.finished_steps, self.plan.place(module.finished_steps)
        state = {
            "step": step,
            "place": {"phase": place.phase, "consumed": place.consumed},
            "model": module.model.state_dict(),
            "optimizer": module.optimizer.state_dict(),
            "frozen_layout": module.frozen_layout,
            "interval": interval,
            "num_tokens": self.num_tokens,
            "seconds": self.clock.seconds._asdict(),
            "row_begun": self.row_begun._asdict(),
            "identity": self.identity,
        }
        copied = on_host(state)
        model = with_weights(module.model, copied["model"])
        self.writer.start(functools.partial(self._write, step, copied, model=model))
        if wait:
            self.writer.wait()

    def _write(self, step: int, state: dict[str, Any], *, model: LanguageModel) -> None:
        # A resumed run relies on the records up to the checkpoint's step, so they are synced to disk first.
        for path in self.job.logs:
            sync_to_disk(path)
        self.checkpoints.save(step, state)
        with folder_written_atomically(self.job.latest_folder) as folder:
            write_model(self.job, model, folder)
