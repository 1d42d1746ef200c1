"""Configuration of the launcher and of the use of the machine; the schedules of the learning rate."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from bertline.foundation.checked import Checked, Fraction, NonNegativeInt, PositiveFloat, PositiveInt, at_least, at_most

Precision = Literal["fp32", "bf16"]
"""Precision of a run, once `auto` is resolved."""
# Minutes, MINUTES:SECONDS, HOURS:MINUTES:SECONDS, DAYS-HOURS, ...: sbatch(1), --time.
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<rest>\d+(?::\d+){0,2})")
# Flags of sbatch by which a job is found again, followed and stopped in time.
_OURS = ("--job-name", "--array", "--chdir", "--dependency", "--output", "--error", "--open-mode", "--signal",
         "--requeue", "--no-requeue")  # fmt: skip
_OURS_SHORT = ("-J", "-a", "-D", "-d", "-o", "-e")


@dataclass(frozen=True, kw_only=True, slots=True)
class _CommonScheduleConfig(Checked, ABC):
    num_warmup_steps: NonNegativeInt
    """Number of steps of linear warm-up."""

    def learning_rate_factor(self, num_steps: int) -> Callable[[int], float]:
        """Return the factor of the peak learning rate, in `[0, 1]`, as a function of the step, so that a resumed run
        needs no state of a scheduler.

        The step is the 0-based one about to be taken. Warm-up is linear; its last step has the full peak learning rate.

        Notes:
            The reference code starts at a learning rate of zero and ends one step before zero. Here neither end is
            wasted: the first step has `1 / num_warmup_steps` of the peak, and the decay would end at step `num_steps`.

        >>> factor = LinearScheduleConfig(kind="linear", num_warmup_steps=2).learning_rate_factor(6)
        >>> [factor(step) for step in range(7)]
        [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
        """
        decay_start = max(self.num_warmup_steps, num_steps - self._decay_steps(num_steps))  # no step of the warm-up
        num_decay_steps = max(1, num_steps - decay_start)

        def factor(step: int) -> float:
            if step < self.num_warmup_steps:
                return (step + 1) / self.num_warmup_steps
            return self._decayed(min(1.0, max(0, step - decay_start) / num_decay_steps))

        return factor

    def _decay_steps(self, num_steps: int) -> int:
        return num_steps

    @abstractmethod
    def _decayed(self, share: float) -> float:
        """Return the factor where this share, in `[0, 1]`, of the decay has passed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LinearScheduleConfig(_CommonScheduleConfig):
    """Linear warm-up to the peak, then linear decay to zero at the last step (paper, A.2)."""

    kind: Literal["linear"]

    def _decayed(self, share: float) -> float:
        return 1.0 - share


@dataclass(frozen=True, kw_only=True, slots=True)
class CosineScheduleConfig(_CommonScheduleConfig):
    """Linear warm-up to the peak, then half a cosine down to `final_fraction` (SGDR, arXiv 1608.03983, section 3)."""

    kind: Literal["cosine"]
    final_fraction: Fraction
    """Final learning rate as a fraction of the peak."""

    def _decayed(self, share: float) -> float:
        return self.final_fraction + (1.0 - self.final_fraction) * 0.5 * (1.0 + math.cos(math.pi * share))


@dataclass(frozen=True, kw_only=True, slots=True)
class ConstantScheduleConfig(_CommonScheduleConfig):
    """Linear warm-up to the peak, then constant."""

    kind: Literal["constant"]

    def _decayed(self, share: float) -> float:
        return 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class WarmupStableDecayScheduleConfig(_CommonScheduleConfig):
    """Linear warm-up, constant until `num_decay_steps` before the end, then decay (arXiv 2405.18392, section 3)."""

    kind: Literal["wsd"]
    num_decay_steps: NonNegativeInt | None
    """Number of decay steps at the end of the run; None: a fifth of the run. Never includes a step of the warm-up,
    however short the run."""
    final_fraction: Fraction
    """Final learning rate as a fraction of the peak."""
    decay: Literal["linear", "1-sqrt"]
    """Shape of the decay; 1-sqrt falls steeply at first."""

    def _decay_steps(self, num_steps: int) -> int:
        # arXiv 2405.18392, section 3.2: a decay over a fifth of the steps matches a cosine over all of them.
        return round(0.2 * num_steps) if self.num_decay_steps is None else self.num_decay_steps

    def _decayed(self, share: float) -> float:
        left = 1.0 - (share if self.decay == "linear" else math.sqrt(share))
        return self.final_fraction + (1.0 - self.final_fraction) * left


ScheduleConfig = LinearScheduleConfig | CosineScheduleConfig | ConstantScheduleConfig | WarmupStableDecayScheduleConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalLauncherConfig:
    """A process of this machine; with several devices, one process for each, started by torchrun."""

    kind: Literal["local"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmLauncherConfig(Checked):
    """A job of Slurm on `runtime.num_nodes` nodes, with one task for each of `runtime.num_devices` devices."""

    kind: Literal["slurm"]
    account: str | None
    """Account to charge (`--account`). None: the user's default."""
    partition: str | None
    """Partition (`--partition`). None: the cluster's default."""
    time: str | None
    """Time limit of one start of the job, such as `4:00:00`; then the job is requeued. None: the partition's limit."""
    memory: str | None
    """Memory of each node, such as `64G` (`--mem`). None: the cluster's default."""
    cpus_per_task: PositiveInt | None
    """CPU cores for each device. None: the cluster's default."""
    gpus: bool
    """Whether to request `runtime.num_devices` GPUs of each node (`--gpus-per-node`)."""
    container: str | None
    """Command that starts the program after it inside a container, such as `apptainer exec --nv bertline.sif`."""
    python: str | None
    """Python of the job. None: the one that runs this command, which needs a file system that the nodes share."""
    setup: tuple[str, ...]
    """Lines of bash that the job runs first, such as `module load cuda`."""
    flags: tuple[str, ...]
    """Any further flags of sbatch, such as `--qos=low`."""
    srun_flags: tuple[str, ...]
    """Any further flags of the srun that starts the ranks, such as `--container-image=bertline.sqsh`."""
    sweep_tasks: PositiveInt
    """Number of tasks of a sweep's job array, each on a node of its own; they share one study in PostgreSQL."""
    stop_before_s: Annotated[int, at_least(1), at_most(65_535)]
    """Seconds before the time limit at which the job is asked to save, stop and be requeued."""
    max_requeues: NonNegativeInt
    """Number of consecutive requeues without progress after which the job fails."""

    def check(self) -> None:
        if self.time is not None and not _TIME.fullmatch(self.time):
            raise ValueError(f"time must be a limit as sbatch takes it, such as '4:00:00', found {self.time!r}")
        if self.time is not None and self.stop_before_s > seconds_of(self.time) // 2:
            raise ValueError(
                f"stop_before_s must be at most half of time ({self.time!r}), found {self.stop_before_s}: a start must "
                "have time to train"
            )
        for flag in self.flags:
            name = re.split(r"[=\s]", flag)[0]
            if name[:2] in _OURS_SHORT or (name.startswith("--") and any(own.startswith(name) for own in _OURS)):
                raise ValueError(f"flags must not contain {name}: jobs are found and followed by it")
            if not flag.startswith("-"):
                raise ValueError(f"flags are flags of sbatch, such as --qos=low, found {flag!r}")
        for name in ("flags", "srun_flags", "setup"):
            if any("\n" in line for line in getattr(self, name)):
                raise ValueError(f"each line of {name} must be one line")


def seconds_of(time: str) -> int:
    """Return a time limit of sbatch in seconds.

    >>> [seconds_of(time) for time in ("90", "90:30", "4:00:00", "1-12", "1-12:30")]
    [5400, 5430, 14400, 129600, 131400]
    """
    found = _TIME.fullmatch(time)
    assert found is not None
    parts = [int(part) for part in found["rest"].split(":")]
    if found["days"] is None and len(parts) < 3:  # minutes come first
        parts.insert(0, 0)
    hours, minutes, seconds = (*parts, 0, 0)[:3]
    return ((int(found["days"] or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


LauncherConfig = LocalLauncherConfig | SlurmLauncherConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class RuntimeConfig(Checked):
    """How and where work is done. Affects speed or place, and results by rounding; no stage depends on it.

    Where dropout masks are drawn (on GPUs, and in fused attention), devices and row layout decide them too: see
    `pretraining.plan.frozen_layout`.
    """

    device: Literal["auto", "cpu", "cuda", "mps"]
    """Device to compute on; auto: a CUDA GPU if there is one, else the CPU."""
    num_devices: PositiveInt
    """Number of devices of each machine. With more than one, `torchrun` starts a process for each; in a job of Slurm,
    `srun` does."""
    num_nodes: PositiveInt
    """Number of machines. The same command runs on each; a job of Slurm starts it there."""
    num_workers: NonNegativeInt
    """Number of processes that prepare text, examples and batches; 0: the main process does it."""
    engine: Literal["local", "ray"]
    """Where corpus, tokenizer and examples work on shards: processes here, or a Ray cluster (`foundation.engine`)."""
    num_threads: PositiveInt | None
    """Number of CPU threads of PyTorch in each process. None: one per core; in a sweep, one per worker, so that results
    do not depend on the number of workers."""
    micro_batch_size: PositiveInt | None
    """Number of sequences per micro-batch on one device; None: the device's whole share of the global batch.
    On a GPU, pretraining finds before its first step whether that fits, and else takes the largest of a half, a
    quarter, ... of it that does."""
    micro_batch_tokens: int | None
    """Number of tokens per micro-batch on one device, padding included, for any length. At most one of this and
    `micro_batch_size` is given."""
    packing: Literal["auto", "on", "off"]
    """Whether sequences share rows in pretraining; auto: if it is faster."""
    compile: Literal["auto", "on", "off"]
    """Whether to use `torch.compile`; auto: if a compiler is there."""
    attention: Literal["auto", "eager", "plain", "sdpa", "varlen"]
    """Attention kernel; auto: the fastest (`modeling.attention_choice`). varlen is for the packed rows of pretraining,
    which fails if varlen is not available. Fine-tuning does not pack rows: varlen means auto there."""
    launcher: LauncherConfig
    """How the long work of `pretrain` and `sweep` is started."""
    sweep_workers: PositiveInt | None
    """Number of processes of a sweep, each with one trial at a time; more processes use more cores. None: one for each
    GPU that this process sees, or two on a CPU."""
    runs_folder: str
    """Folder of work in progress: frozen configurations, logs, checkpoints, metrics."""
    progress_every_s: float
    """Seconds between progress lines when there is no terminal."""
    checkpoint_every_s: PositiveFloat | None
    """Largest number of seconds of pretraining between two checkpoints, whatever `pretrain.checkpoint_every_steps` is:
    what a failure can lose. None: the cadence in steps alone counts."""
    peer_timeout_s: PositiveFloat
    """Seconds after which a rank that is lost or hangs ends the training of all. It must be more than one rank may need
    alone while the others wait: to compile, validate or write a checkpoint to a slow disk."""
    profile: bool
    """Whether to write a trace of five pretraining steps and their ten costliest operations to the run folder."""

    def check(self) -> None:
        if self.micro_batch_size is not None and self.micro_batch_tokens is not None:
            raise ValueError(
                f"give micro_batch_size or micro_batch_tokens, not both, found {self.micro_batch_size} and "
                f"{self.micro_batch_tokens}"
            )
