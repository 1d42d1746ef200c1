"""A Slurm cluster of two nodes on this machine: Debian's `slurm-wlm` and `munge`, in a folder of its own.

    with SlurmCluster(folder) as cluster:
        subprocess.run(["srun", "-N2", "hostname"], env=cluster.environment())

Each node is a slurmd in namespaces of its own: it has its own host name, finds the others by name, and can have a disk
of its own (`own_disk`) or a network of its own (`Settings.networks`). Processes are started and killed by their id. Two
clusters can run at once. There is no accounting: `sacct` fails, as on many small clusters.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

import found_processes
from node_networks import NodeNetworks
from ports import free_port

CONTROLLER = "slurmctld"
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "sinfo", "unshare", "nsenter")
_START_S = 600.0
_STOP_S = 3.0
_CONFIGURATION = """\
ClusterName=bertline{port}
SlurmctldHost={here}({host})
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={munge},cred_expire={settings.requeue_delay_s}
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={spool}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/%n.log
KillWait={settings.kill_wait}
MinJobAge=300
SlurmdTimeout={settings.node_timeout_s}
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
# Nodes may have more CPUs and memory than this machine.
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
# Schedule at once: these jobs are few and short.
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=2
{nodes}
PartitionName=main Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime={settings.grace_s}
PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF
"""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a test may ask of its cluster; times are in seconds."""

    kill_wait: int = 5
    """From TERM to KILL, when a job is cancelled or reaches its time limit."""
    grace_s: int = 5
    """From the first TERM to the second, when a job of `main` gives way to one of `urgent`."""
    requeue_delay_s: int = 5
    """How long a requeued job waits before it may start again; Slurm's own default is 120."""
    node_timeout_s: int = 30
    """When a node that does not answer is DOWN."""
    networks: bool = False
    """Whether each node has a network of its own, whose link can be cut: then 127.0.0.1 is the node itself."""


@functools.cache
def why_not() -> str | None:
    """Return why no cluster can run here, as a sentence with the remedy; None if one can."""
    if os.getuid() != 0:
        return "a test cluster needs root (its slurmctld runs with SlurmUser=root)"
    missing = [name for name in PROGRAMS if _found(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)}. apt-get install slurm-wlm munge"
    refused = subprocess.run(["unshare", "--mount", "--uts", "true"], capture_output=True, text=True)
    if refused.returncode:
        return f"this container may not make namespaces ({refused.stderr.strip()}): run it with --privileged"
    return None


@dataclass
class SlurmCluster:
    """A running cluster; a context manager that leaves no process and no namespace, even if its process is killed.

    Partitions are `main` (the default; its jobs are requeued when `urgent` needs the nodes) and `urgent`. Slurm counts
    time limits in whole minutes.
    """

    folder: Path
    settings: Settings = field(default_factory=Settings)
    nodes: tuple[str, ...] = ("node1", "node2")
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict, init=False)
    _watcher: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Choose ports and addresses."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.networks = NodeNetworks(self.nodes) if self.settings.networks else None
        controller, *of_nodes = (free_port() for _ in range(1 + len(self.nodes)))
        self._controller_port, self._ports = controller, dict(zip(self.nodes, of_nodes, strict=True))
        # A folder with a short name, for sockets; and munged runs as munge, which cannot enter pytest's folders.
        self._short = Path(tempfile.mkdtemp(prefix="bertline-slurm-"))

    @property
    def _variable(self) -> str:
        return f"SLURM_CONF={self.configuration}"

    @property
    def configuration(self) -> Path:
        """The slurm.conf."""
        return self.folder / "slurm.conf"

    def environment(self) -> dict[str, str]:
        """Return this process's environment, without Slurm's own variables, for this cluster's commands."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
        return {**kept, "SLURM_CONF": str(self.configuration)}

    def ask(self, *command: str, check: bool = True) -> str:
        """Return what a command of Slurm's prints.

        Raises:
            RuntimeError: It failed; with what it said.
        """
        done = subprocess.run(command, env=self.environment(), capture_output=True, text=True, timeout=_START_S)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: exit status {done.returncode}: {done.stderr.strip()}")
        return done.stdout.strip()

    def state(self, job: str | int) -> str:
        """Return a job's state, as `PENDING` or `COMPLETED`; `FORGOTTEN` if the controller no longer knows it."""
        shown = self.ask("scontrol", "--oneliner", "show", "job", str(job), check=False)
        return next((word[9:] for word in shown.split() if word.startswith("JobState=")), "FORGOTTEN")

    def wait_for(self, job: str | int, *states: str, within_s: float = _START_S) -> str:
        """Wait until a job is in one of the states; return it.

        Raises:
            TimeoutError: It was not, in that time.
        """
        _until(lambda: self.state(job) in states, within_s, lambda: f"job {job} is {self.state(job)}, not {states}")
        return self.state(job)

    def submit(self, script: str, *options: str) -> str:
        """Submit the text of a batch script; return the job's id."""
        path = self.folder / f"batch-{time.monotonic_ns()}.sh"
        path.write_text(f"#!/bin/bash\n{script}\n")
        output = f"--output={self.folder}/job-%j.log"
        return self.ask("sbatch", "--parsable", f"--chdir={self.folder}", output, *options, str(path)).partition(";")[0]

    def pid(self, name: str) -> int:
        """Return the process of `slurmctld` or of a node's slurmd."""
        return self._processes[name].pid

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Kill `slurmctld` or a node's slurmd (the jobs on the node continue); `start` starts it again.

        A controller that is killed before it has written down a job's start requeues the job and drains its node.
        """
        self._processes[name].send_signal(number)
        self._processes.pop(name).wait(_STOP_S)

    def lose(self, node: str) -> None:
        """End a node as a power cut does: its slurmd and its jobs' processes; `start` brings an empty node back."""
        namespace = Path(f"/proc/{self.pid(node)}/ns/uts").readlink()
        assert namespace != Path("/proc/self/ns/uts").readlink()
        self.kill(node)
        for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first, so that none reports the end of another
            for pid in psutil.pids():  # by namespace: slurmstepd writes its title over its environment
                with suppress(OSError):  # ended meanwhile
                    if Path(f"/proc/{pid}/ns/uts").readlink() == namespace:
                        os.kill(pid, number)

    def start(self, name: str) -> None:
        """Start `slurmctld` or a node's slurmd."""
        if name == CONTROLLER:
            command = [_binary("slurmctld"), "-D", "-f", str(self.configuration)]
        else:
            command = self._in_namespaces(name)
        self._launch(name, command)

    def wait_until_idle(self, within_s: float = _START_S) -> None:
        """Wait until all nodes answer and have no job.

        Raises:
            TimeoutError: They do not; with what the daemons wrote last.
        """
        shown = ("sinfo", "--noheader", "--Node", "--partition=main", "--format=%N %T")
        expected = sorted(f"{node} idle" for node in self.nodes)
        _until(lambda: sorted(self.ask(*shown, check=False).splitlines()) == expected, within_s, self._complaint)

    def inside(self, node: str, *command: str) -> str:
        """Run a command in a node's namespaces, as root; return what it prints."""
        entered = ["nsenter", "--target", str(self.pid(node)), "--mount", "--uts", "--net", *command]
        return subprocess.run(entered, check=True, capture_output=True, text=True).stdout

    def own_disk(self, node: str, folder: Path, size: str) -> None:
        """Give a node an empty disk of a size such as `10m` in place of a folder; lost when its slurmd restarts."""
        self.inside(node, "mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))

    def processes(self) -> list[psutil.Process]:
        """Return all processes, jobs' and commands', that have this cluster in their environment.

        This process and those that it descends from do not count.
        """
        return found_processes.having(self._variable)

    def orphans(self) -> list[int]:
        """Return the ids of those that are neither the cluster's own daemons nor children that these keep."""
        own, left = {process.pid for process in self._processes.values()}, []
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                if not own & {process.pid, process.ppid()}:
                    left.append(process.pid)
        return left

    def __enter__(self) -> SlurmCluster:
        """Start everything and wait until the nodes are idle."""
        try:
            closing = [] if self.networks is None else self.networks.closing
            self._watcher = found_processes.watched(self._variable, self._short, closing)
            if self.networks is not None:
                self.networks.open()
            self._write()
            self._start_munged()
            for name in (CONTROLLER, *self.nodes):
                self.start(name)
            self.wait_until_idle()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """Stop."""
        self.stop()

    def stop(self) -> None:
        """Cancel all jobs, stop all daemons, and kill what is left of their jobs.

        Raises:
            TimeoutError: Processes do not end; with their commands.
        """
        if CONTROLLER in self._processes:
            self.ask("scancel", "--user=root", "--signal=KILL", "--full", check=False)
            self.ask("scancel", "--user=root", check=False)
        for process in reversed(self._processes.values()):
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:  # a controller waits for nodes that do not answer
                process.kill()
                process.wait()
        self._processes.clear()
        try:
            found_processes.end(self.processes)
        finally:
            if self.networks is not None:
                self.networks.close()
            shutil.rmtree(self._short, ignore_errors=True)
            if self._watcher is not None:
                self._watcher.kill()
                self._watcher.wait()
                self._watcher = None

    def _start_munged(self) -> None:
        key = self._short / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        for path in (self._short, key):
            shutil.chown(path, "munge", "munge")
        self._short.chmod(0o755)
        places = {name: self._short / name for name in ("seed", "pid", "log")}
        files = [f"--{name}-file={place}" for name, place in places.items()]
        command = [_binary("munged"), "--foreground", f"--key-file={key}", f"--socket={self._socket}", *files]
        self._launch("munged", command, user="munge", group="munge", extra_groups=[])
        _until(self._socket.exists, _START_S, self._complaint)

    def _launch(self, name: str, command: list[str], **options: Any) -> None:
        with (self.folder / f"{name}.out").open("ab") as output:
            self._processes[name] = subprocess.Popen(
                command, env=self.environment(), stdout=output, stderr=output, start_new_session=True, **options
            )

    @property
    def _socket(self) -> Path:
        return self._short / "socket"

    def _in_namespaces(self, node: str) -> list[str]:
        # All nodes are found by name, as on a cluster, without a change to the machine's /etc/hosts.
        script = 'hostname "$1" && mount --bind "$2" /etc/hosts && shift 2 && exec "$@"'
        inside = ["sh", "-c", script, "node", node, str(self.folder / "hosts")]
        slurmd = [_binary("slurmd"), "-D", "-N", node, "-f", str(self.configuration)]
        network = [] if self.networks is None else self.networks.enter(node)
        return [*network, "unshare", "--mount", "--uts", *inside, *slurmd]

    def _write(self) -> None:
        """Write `slurm.conf` and `hosts`."""
        here, host, addresses = socket.gethostname(), "127.0.0.1", dict.fromkeys(self.nodes, "127.0.0.1")
        if self.networks is not None:
            host, addresses = self.networks.host, {node: self.networks.address(node) for node in self.nodes}
        for name in ("state", "log"):
            (self.folder / name).mkdir(exist_ok=True)
        hosts = [f"127.0.0.1 localhost\n{host} {here}", *(f"{addresses[node]} {node}" for node in self.nodes)]
        (self.folder / "hosts").write_text("\n".join(hosts) + "\n")
        nodes = [
            f"NodeName={node} NodeHostname={node} NodeAddr={addresses[node]} Port={self._ports[node]} CPUs=4 "
            "RealMemory=8000 State=UNKNOWN"
            for node in self.nodes
        ]
        fields = {"here": here, "host": host, "port": self._controller_port, "nodes": "\n".join(nodes)}
        fields |= {"folder": self.folder, "munge": self._socket, "spool": self._short, "settings": self.settings}
        self.configuration.write_text(_CONFIGURATION.format(**fields))

    def _complaint(self) -> str:
        ends = [path.read_text(errors="replace")[-600:] for path in sorted(self.folder.glob("log/*.log"))]
        said = [path.read_text(errors="replace")[-600:] for path in sorted(self.folder.glob("*.out"))]
        return "\n".join(["the cluster is not ready", self.ask("sinfo", check=False), *ends, *said])


def _binary(name: str) -> str:
    found = _found(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed: apt-get install slurm-wlm munge")
    return found


def _found(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _until(true: Callable[[], bool], within_s: float, complaint: Callable[[], str]) -> None:
    deadline = time.monotonic() + within_s
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{complaint()} (after {within_s:g} s)")
        time.sleep(0.2)
