"""The slurm.conf of a test cluster, and the files that it names."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a test may ask of its cluster; times are in seconds."""

    cpus: int = 4
    """CPUs of each node, as Slurm counts them."""
    gpus: int = 0
    """GPUs of each node that Slurm believes in (`--gpus-per-node`)."""
    memory_mb: int = 8000
    kill_wait: int = 5
    """From TERM to KILL, when a job is cancelled or reaches its time limit."""
    grace_s: int = 5
    """From the first TERM to the second, when a job of `main` gives way to one of `urgent`."""
    requeue_delay_s: int = 5
    """How long a requeued job waits before it may start again; Slurm's own default is 120."""
    forget_after_s: int = 300
    """When the controller forgets a job that has ended; at least 2."""
    node_timeout_s: int = 30
    """When a node that does not answer is DOWN."""
    networks: bool = False
    """Whether each node has a network of its own, whose link can be cut: then 127.0.0.1 is the node itself."""
    more: str = ""
    """Further lines of slurm.conf."""


def write(
    folder: Path,
    settings: Settings,
    *,
    nodes: Mapping[str, tuple[str, int]],
    controller: tuple[str, str, int],
    munge: Path,
    spool: Path,
) -> None:
    """Write `slurm.conf`, `hosts`, and `gres.conf` where there are GPUs.

    Args:
        folder: Folder of the cluster.
        settings: What a test asked for.
        nodes: Address and port of each node's slurmd.
        controller: Host name, address and port of the slurmctld.
        munge: Socket of munged.
        spool: Folder with a short name, for the slurmds' files.
    """
    names = {name: folder / name for name in ("state", "log")}
    for path in names.values():
        path.mkdir(exist_ok=True)
    here, host, port = controller
    hosts = [f"127.0.0.1 localhost\n{host} {here}", *(f"{address} {node}" for node, (address, _) in nodes.items())]
    (folder / "hosts").write_text("\n".join(hosts) + "\n")
    if settings.gpus:
        _write_gpus(folder, settings.gpus)
    gres = f" Gres=gpu:{settings.gpus}" if settings.gpus else ""
    of_nodes = [
        f"NodeName={node} NodeHostname={node} NodeAddr={address} Port={port} "
        f"CPUs={settings.cpus} RealMemory={settings.memory_mb}{gres} State=UNKNOWN"
        for node, (address, port) in nodes.items()
    ]
    partitions = [
        f"PartitionName=main Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime={settings.grace_s}",
        "PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF",
    ]
    lines = [
        f"ClusterName=bertline{port}",
        f"SlurmctldHost={here}({host})",
        f"SlurmctldPort={port}",
        f"AuthInfo=socket={munge},cred_expire={settings.requeue_delay_s}",
        f"StateSaveLocation={names['state']}",
        f"SlurmdSpoolDir={spool}/%n",
        f"SlurmctldPidFile={folder}/slurmctld.pid",
        f"SlurmdPidFile={folder}/slurmd-%n.pid",
        f"SlurmctldLogFile={names['log']}/slurmctld.log",
        f"SlurmdLogFile={names['log']}/%n.log",
        f"KillWait={settings.kill_wait}",
        f"MinJobAge={settings.forget_after_s}",
        f"SlurmdTimeout={settings.node_timeout_s}",
        *_ALWAYS,
        *(["GresTypes=gpu"] if settings.gpus else []),
        *of_nodes,
        *partitions,
        settings.more,
    ]
    (folder / "slurm.conf").write_text("\n".join(lines) + "\n")


def _write_gpus(folder: Path, number: int) -> None:
    devices = [folder / f"gpu{index}" for index in range(number)]
    for device in devices:  # Slurm asks for devices; these are /dev/null
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    lines = [f"Name=gpu File={device}" for device in devices]
    (folder / "gres.conf").write_text("\n".join(lines) + "\n")


_ALWAYS = (
    "SlurmUser=root",
    "SlurmdUser=root",
    "AuthType=auth/munge",
    "MpiDefault=none",
    "ProctrackType=proctrack/linuxproc",
    "TaskPlugin=task/none",
    "SelectType=select/cons_tres",
    "SelectTypeParameters=CR_Core",
    "ReturnToService=2",
    "SlurmdParameters=config_overrides",  # nodes may have more CPUs and memory than this machine
    "PreemptType=preempt/partition_prio",
    "PreemptMode=REQUEUE",
    # Schedule at once: these jobs are few and short.
    "SchedulerType=sched/builtin",
    "SchedulerParameters=batch_sched_delay=0,sched_interval=2",
)
