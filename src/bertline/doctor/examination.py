"""The examination: what each rank checks by itself, then what the ranks check together, gathered by rank 0.

Each rank checks its device; the first rank of each host also checks software, processes, folders and the studies'
database; rank 0 also checks MLflow, the DVC remote and Slurm. All report through the store of `meeting`, never through
the process group: it may be what is broken.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from bertline.doctor import devices, memory, processes, servers, slurm, software
from bertline.doctor.finding import Finding, unused
from bertline.doctor.folders import Folder, existing, folder_findings, linked_folders
from bertline.doctor.limits import Check, Deadline, run_checks
from bertline.doctor.meeting import Place
from bertline.orchestration.config import PipelineConfig
from bertline.orchestration.slurm.script import job_script
from bertline.planning import Training
from bertline.pretraining.compact import most_sent
from bertline.pretraining.row_layout import rows_at_once
from bertline.training.config import RuntimeConfig
from bertline.training.launchers import SlurmLauncherConfig

_GIB = 1 << 30
_QUICK_S, _COMPILER_S, _DEVICE_S, _FOLDER_S, _SERVER_S = 8.0, 20.0, 20.0, 8.0, 15.0
# Steps of batches that are ready at once: per data worker, and in the training process (pretraining.data).
AHEAD_OF_EACH_WORKER, AHEAD_OF_TRAINING = 4, 3
_HANGS = "It hangs: look at dmesg, the mounts and the load of this machine, and run the doctor again."


@dataclass(kw_only=True)
class Report:
    """What one rank reports."""

    rank: int
    host: str
    cores: processes.Cores
    memory_bytes: int
    """Memory of the rank's GPU, or its share of what its host has available."""
    device_type: str
    findings: list[Finding] = field(default_factory=list)

    def as_data(self) -> dict[str, Any]:
        """Return plain data, to be told to rank 0."""
        findings = [{**asdict(one), "measured": dict(one.measured)} for one in self.findings]
        return {**vars(self), "findings": findings}

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Report:
        """Return the report of plain data."""
        return cls(**{**data, "findings": [Finding(**one) for one in data["findings"]]})


def works_elsewhere(runtime: RuntimeConfig, environment: Mapping[str, str]) -> bool:
    """Return whether this process only submits the work, to Slurm, and is in no job itself."""
    return isinstance(runtime.launcher, SlurmLauncherConfig) and "SLURM_JOB_ID" not in environment


class Examination:
    """Checks of one rank.

    Args:
        config: The configuration of the run.
        place: Place of this process.
        repository: Folder of the repository.
        deadline: When all must be over.
    """

    def __init__(self, config: PipelineConfig, place: Place, repository: Path, deadline: Deadline) -> None:
        self.config = config
        self.place = place
        self.repository = repository
        self.deadline = deadline
        runtime = config.runtime
        self.num_ranks = max(place.ranks.world_size, runtime.num_devices * runtime.num_nodes)
        self.num_local_ranks = max(runtime.num_devices, place.num_local_ranks)
        self.device = torch.device("cpu")  # until it is found
        self.training: Training | None = None

    @property
    def several_machines(self) -> bool:
        """Whether the configuration runs on more than one machine."""
        return self.config.runtime.num_nodes > 1 or self.submits

    @property
    def submits(self) -> bool:
        """Whether the configuration submits jobs to Slurm."""
        return isinstance(self.config.runtime.launcher, SlurmLauncherConfig)

    @property
    def is_elsewhere(self) -> bool:
        """Whether the work will be on other machines than this one, which only submits it."""
        return works_elsewhere(self.config.runtime, os.environ)

    def report(self) -> Report:
        """Run this rank's own checks."""
        run = self._run
        # The first use of a GPU, so that one that hangs hangs here.
        of_device = [] if self.is_elsewhere else run(self._devices())
        report = Report(
            rank=self.place.ranks.rank,
            host=self.place.host,
            cores=processes.cores_and_quota(),
            memory_bytes=self._memory(),
            device_type=self.device.type,
        )
        if self.place.ranks.local_rank == 0:
            self.training = self.training_here()
            report.findings += run(self._software())
        report.findings += of_device
        if self.place.ranks.local_rank == 0:
            if not self.is_elsewhere:
                report.findings += run(self._processes())
            report.findings += run(self._servers(), together=True)
            report.findings += run(self._folders())
        return report

    def training_here(self) -> Training | None:
        """Return the pretraining on this device; None if nothing is pretrained or it cannot be planned."""
        found: list[Training] = []

        def estimate() -> Iterable[Finding]:
            found.append(memory.training_on(self.config, self.device))
            return ()

        if self.config.pretrains:
            self._run([_check("memory", estimate)])
        return found[0] if found else None

    def memory_findings(self, memory_bytes: int) -> list[Finding]:
        """Compare the phases with the least memory of any rank, in bytes."""
        runtime = self.config.runtime
        by_hand = runtime.micro_batch_size is not None or runtime.micro_batch_tokens is not None

        def compare() -> Iterator[Finding]:
            training = memory.training_on(self.config, self.device)
            yield from memory.memory_findings(training, memory_bytes, num_ranks=self.num_ranks, chosen_by_hand=by_hand)

        if not self.config.pretrains:
            return [unused("memory", "not used: nothing is pretrained")]
        return self._run([_check("memory", compare)])

    def folders(self) -> list[Folder]:
        """Return the folders to check."""
        saved = memory.checkpoint_bytes(self.training) if self.training else 0
        keep = self.config.pretrain.keep_checkpoints + 2  # the best, and the next while the oldest is still there
        cache = _cache_folder(self.repository)
        runs = self.repository / self.config.runtime.runs_folder
        found = [
            Folder(
                title="runs",
                path=runs,
                needed_bytes=_GIB + keep * saved,
                checkpoint_bytes=saved,
                setting="runtime.runs_folder",
            ),
            Folder(title="cache", path=cache, needed_bytes=_GIB + 4 * saved, setting="dvc cache dir"),
        ]
        return [*found, Folder(title="data", path=self.repository / "data", needed_bytes=0, is_input=True)]

    def _run(self, checks: list[Check], *, together: bool = False) -> list[Finding]:
        return run_checks(checks, self.deadline, together=together)

    def _software(self) -> list[Check]:
        runtime = self.config.runtime
        of_all = [
            _check("Python", lambda: [software.python_finding()]),
            _check("PyTorch", lambda: [software.torch_finding()]),
        ]
        if self.is_elsewhere:
            return of_all
        return [
            *of_all,
            _check("compiler", lambda: software.compiler_findings(runtime, self.device), limit_s=_COMPILER_S),
            _check("driver", lambda: [devices.driver_finding()]),
        ]

    def _devices(self) -> list[Check]:
        runtime, ranks, precision = self.config.runtime, self.place.ranks, self.config.pretrain.precision
        advice = "The GPU does not answer: look at nvidia-smi and dmesg (Xid), reset it or use another node."

        def examine() -> Iterator[Finding]:
            yield from devices.device_findings(runtime, ranks, precision)
            self.device = devices.device_of(runtime, ranks)

        return [_check("device", examine, advice, limit_s=_DEVICE_S)]

    def _processes(self) -> list[Check]:
        traffic = self._traffic()
        return [
            _check("open files", lambda: [processes.descriptor_finding(traffic)]),
            _check("shared memory", lambda: [processes.shared_memory_finding(traffic, self.num_local_ranks)]),
        ]

    def _traffic(self) -> processes.BatchTraffic:
        runtime = self.config.runtime
        micro_batches, tensors, num_bytes = 1, 0, 0
        for phase in self.config.pretrain.phases:
            share = -(-phase.global_batch_size // self.num_ranks)
            rows = share
            if runtime.micro_batch_tokens is None or runtime.micro_batch_tokens >= phase.max_length:
                rows = rows_at_once(runtime, phase.max_length) or share
            here = -(-share // rows)
            tensors, bytes_per_row = most_sent(phase.max_length, self.config.examples.masking.mask_prob)
            micro_batches, num_bytes = max(micro_batches, here), max(num_bytes, here * rows * bytes_per_row)
        return processes.BatchTraffic(
            num_workers=runtime.num_workers,
            num_steps=runtime.num_workers * AHEAD_OF_EACH_WORKER + AHEAD_OF_TRAINING,
            micro_batches=micro_batches,
            tensors=tensors,
            bytes_per_step=num_bytes,
        )

    def _servers(self) -> list[Check]:
        tracking, away = self.config.tracking, "Start it, or correct its address; a firewall may swallow requests."
        launcher, several = self.config.runtime.launcher, self.several_machines
        tasks = launcher.sweep_tasks if isinstance(launcher, SlurmLauncherConfig) else 1

        def studies() -> Iterator[Finding]:
            return servers.studies_findings(tracking, several_machines=several, num_sweep_tasks=tasks)

        checks = [_check("studies", studies, away)]
        if self.place.ranks.is_first:
            used = self.submits or "SLURM_JOB_ID" in os.environ
            checks += [
                _check("MLflow", lambda: servers.mlflow_findings(tracking), away),
                _check("DVC remote", lambda: servers.remote_findings(self.repository), away),
                _check("Slurm", lambda: slurm.slurm_findings(is_used=used, script=self._job_script()), away),
            ]
        return [Check(name=one.name, run=one.run, advice=one.advice, limit_s=_SERVER_S) for one in checks]

    def _job_script(self) -> str:
        launcher, runtime = self.config.runtime.launcher, self.config.runtime
        if not isinstance(launcher, SlurmLauncherConfig):
            return ""
        folder = Path(runtime.runs_folder) / "doctor"
        return job_script(folder, "bertline.doctor:none", runtime, launcher, name="doctor", ranks=True)

    def _folders(self) -> list[Check]:
        measured: dict[int, str] = {}
        checks = []
        for folder in self.folders():
            limit_s = _FOLDER_S * (2 if folder.is_input else 1)  # links in it may lead to other file systems
            checks.append(_check(f"{folder.title}: folder", self._folder_check(folder, measured), limit_s=limit_s))
        return checks

    def _folder_check(self, folder: Folder, measured: dict[int, str]) -> Callable[[], Iterable[Finding]]:
        def check() -> Iterator[Finding]:
            linked = linked_folders(folder) if folder.is_input else []
            for each in [folder, *linked]:
                device = existing(each.path).stat().st_dev
                found = list(folder_findings(each, measured_as=measured.get(device)))
                if any(one.check == f"{each.title}: speed" for one in found):
                    measured.setdefault(device, each.title)
                yield from found

        return check

    def _memory(self) -> int:
        if self.device.type == "cuda":
            return int(torch.cuda.get_device_properties(self.device).total_memory)
        return processes.memory_limit() // self.num_local_ranks


def _cache_folder(repository: Path) -> Path:
    from dvc.config import Config
    from dvc.exceptions import DvcException

    try:
        folder = Config(str(repository / ".dvc"))["cache"].get("dir")
    except DvcException:  # the check of the remote reads it again, and says what is wrong
        folder = None
    return Path(folder) if folder else repository / ".dvc" / "cache"


def _check(
    name: str, run: Callable[[], Iterable[Finding]], advice: str = _HANGS, *, limit_s: float = _QUICK_S
) -> Check:
    return Check(name=name, run=run, limit_s=limit_s, advice=advice)
