"""Checks of what the processes of a host may use: cores, open files and shared memory."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from bertline.doctor.finding import Finding, green, note, red, unused
from bertline.foundation.parallel import usable_cores
from bertline.training.config import RuntimeConfig

SHARED_MEMORY = Path("/dev/shm")
_CGROUP = Path("/sys/fs/cgroup")
_OWN_FILES = 256
"""Files that a rank opens apart from its batches: libraries, shards, sockets, logs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchTraffic:
    """Batches on the way from the data workers of one rank to its model."""

    num_workers: int
    num_steps: int
    """Steps that are ready at once."""
    micro_batches: int
    """Micro-batches of a step, at most."""
    tensors: int
    """Tensors of a micro-batch, at most; each is an open file while it is in shared memory, of whole pages."""
    bytes_per_step: int
    """Bytes of a step's batch, at most."""

    @property
    def num_files(self) -> int:
        """Files that a rank keeps open, at most."""
        return _OWN_FILES + (self.num_steps * self.micro_batches * self.tensors if self.num_workers else 0)

    @property
    def num_bytes(self) -> int:
        """Bytes of shared memory of a rank, at most."""
        pages = self.micro_batches * self.tensors * resource.getpagesize()
        return self.num_steps * (self.bytes_per_step + pages) if self.num_workers else 0


def descriptor_finding(traffic: BatchTraffic) -> Finding:
    """Compare the limit of open files with what the data workers' batches need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = "any number of" if soft == resource.RLIM_INFINITY else f"{soft:,}"
    found = f"{allowed} open files allowed, {traffic.num_files:,} needed"
    if soft == resource.RLIM_INFINITY or soft >= traffic.num_files:
        return green("open files", found, allowed=soft)
    if hard == resource.RLIM_INFINITY or hard >= traffic.num_files:
        fix = f"Raise the limit in the shell or batch script that starts the run: ulimit -n {traffic.num_files}."
    else:
        fix = (
            f"The hard limit is {hard:,}: have nofile raised in /etc/security/limits.conf (for slurmd: "
            "LimitNOFILE), or lower runtime.num_workers."
        )
    return red("open files", found, fix, allowed=soft)


def shared_memory_finding(traffic: BatchTraffic, num_local_ranks: int, folder: Path = SHARED_MEMORY) -> Finding:
    """Compare the free shared memory of a host with the batches of its ranks' data workers."""
    needed = num_local_ranks * traffic.num_bytes
    if not needed:
        return unused("shared memory", "not used: no data workers prepare batches of pretraining")
    if not folder.is_dir():
        return red(
            "shared memory",
            f"{folder} is missing",
            f"Mount it (mount -t tmpfs tmpfs {folder}) or runtime.num_workers=0.",
        )
    free = shutil.disk_usage(folder).free
    found = f"{_mega(free)} free in {folder}, at most {_mega(needed)} needed by the batches of the data workers"
    if free >= needed:
        return green("shared memory", found, free_bytes=free)
    return red(
        "shared memory",
        found,
        f"Start the container with more (docker run --shm-size={needed // 10**9 + 1}g, or --ipc=host), or lower "
        "runtime.num_workers.",
        free_bytes=free,
    )


class Cores(TypedDict):
    """What a process may compute on."""

    cores: list[int]
    """Numbers of the cores that it may run on."""
    quota: float | None
    """Cores' worth of time that its cgroups allow; None if unlimited."""


def cores_and_quota() -> Cores:
    """Return what this process may compute on."""
    return {"cores": usable_cores(), "quota": cpu_quota()}


def cpu_quota(root: Path = _CGROUP, own: Path = Path("/proc/self/cgroup")) -> float | None:
    """Return the number of cores' worth of time that the cgroups of this process allow; None if unlimited."""
    quotas = []
    for folder in _cgroup_folders(root, own):
        try:
            if (folder / "cpu.max").exists():
                quota, period = (folder / "cpu.max").read_text().split()
            else:
                quota = (folder / "cpu.cfs_quota_us").read_text().strip()
                period = (folder / "cpu.cfs_period_us").read_text().strip()
        except (OSError, ValueError):
            continue
        if quota not in ("max", "-1"):
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def memory_limit(root: Path = _CGROUP, own: Path = Path("/proc/self/cgroup")) -> int:
    """Return the bytes of memory that this process can use: what the system has available, or its cgroups leave."""
    limits = [_available_bytes()]
    for folder in _cgroup_folders(root, own):
        for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            try:
                limits.append(int((folder / limit).read_text()) - int((folder / used).read_text()) + _cache(folder))
            except (OSError, ValueError):
                continue
    return max(0, min(limits))


def _cgroup_folders(root: Path, own: Path) -> list[Path]:
    """Return the folders of the cgroups that this process is in, from its own to the root."""
    folders: list[Path] = []
    try:
        lines = own.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        above = root if not controllers else root / controllers
        folder = above / path.lstrip("/")
        while folder != above and above in folder.parents:
            folders.append(folder)
            folder = folder.parent
        folders.append(above)
    folders += [root, root / "cpu", root / "memory"]  # inside a container the path may be the host's
    return list(dict.fromkeys(folders))


def _cache(folder: Path) -> int:
    """Return the bytes of a cgroup's page cache, which is given up when memory is needed."""
    try:
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return 0
    return int(stat.get("inactive_file", 0))


def _available_bytes() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def cores_finding(ranks: Sequence[Cores], runtime: RuntimeConfig, device_type: str) -> Finding:
    """Compare the cores of one host with its ranks and their data workers.

    Args:
        ranks: `cores_and_quota` of each rank of the host.
        runtime: The runtime section.
        device_type: Type of the ranks' device.
    """
    cores = {core for each in ranks for core in each["cores"]}
    quotas = [each["quota"] for each in ranks if each["quota"] is not None]
    usable = min([float(len(cores)), *quotas])
    processes = len(ranks) * (1 + runtime.num_workers)
    limit = f", {usable:g} of them by the quota of its cgroup" if usable < len(cores) else ""
    found = f"{len(cores)} core(s){limit} for {len(ranks)} rank(s) with {runtime.num_workers} data workers each"
    many = (
        "Ask for more (srun --cpus-per-task, docker run --cpus, taskset), or lower runtime.num_devices, "
        "runtime.num_workers"
    )
    if usable < len(ranks):
        return red("cores", found, f"{many}: several ranks share a core, and each waits for the others.", cores=usable)
    if device_type != "cpu" and usable < processes:
        return note("cores", found, f"{many} if perf/data_wait_fraction rises above 0.02.", cores=usable)
    threads = runtime.num_threads or 1
    if device_type == "cpu" and len(ranks) * threads > usable:
        return note(
            "cores", f"{found}, {threads} thread(s) a rank", "Lower runtime.num_threads: threads wait.", cores=usable
        )
    return green("cores", found, cores=usable)


def _mega(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.0f} MB"
