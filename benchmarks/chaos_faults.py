"""The faults of benchmarks/chaos.py: what is done to a pretraining on two Slurm nodes, and its user."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from measurements import HERE

sys.path.append(str(HERE.parent / "tests" / "support"))
from servers import MLflowServer, PostgreSQL
from slurm_cluster import CONTROLLER, SlurmCluster
from slurm_workspace import Workspace

KINDS = ("rank", "slurmd", "slurmctld", "client", "mlflow", "postgresql", "link", "disk")
_AWAY_S = (1.0, 12.0)
"""Shortest and longest time that something is away."""
_PROGRESS_S = 240.0
_FULL_DISK = "No space left on device"


def due_steps(faults: int, steps: int, draws: random.Random) -> list[int]:
    """Return at which step each fault is due: one in each of `faults` equal parts, the end left free for the last."""
    part = steps / (faults + 1)
    return [int(part * (number + draws.random())) for number in range(faults)]


@dataclass
class Chaos:
    """A training, its client, and what is done to them."""

    workspace: Workspace
    cluster: SlurmCluster
    mlflow: MLflowServer
    postgresql: PostgreSQL
    draws: random.Random
    done: list[str] = field(default_factory=list)
    num_clients: int = 0
    _client: subprocess.Popen[bytes] | None = None
    _started: float = field(default_factory=time.monotonic)

    def run(self, faults: int, kinds: list[str], steps: int) -> None:
        """Train to the end of so many steps, with so many faults spread over them, as far as the training lasts."""
        self._start()
        for due in due_steps(faults, steps, self.draws):
            hits = len(self.done)
            while len(self.done) == hits and self._reached(max(due, self._step() + 1)):
                self._hit(kinds)
        self._wait(self._over)

    def _hit(self, kinds: list[str]) -> None:
        """Do one fault: of the kind that was done least and finds something to hit."""
        for kind in sorted(kinds, key=lambda kind: (self.done.count(kind), self.draws.random())):
            step, after_s = self._step(), time.monotonic() - self._started
            if self._over():
                return
            if getattr(self, f"_hit_{kind}")():
                self.done.append(kind)
                print(f"{len(self.done)}: {kind} at step {step} after {after_s:.0f} s", flush=True)
                return
            print(f"   {kind} found nothing to hit at step {step}", flush=True)

    def _reached(self, due: int) -> bool:
        """Wait for a checkpoint of a step or a later one; return whether there is one before the end."""
        self._wait(lambda: self._over() or self._step() >= due)
        return not self._over()

    def _wait(self, what: Callable[[], bool]) -> None:
        """Wait until something is true, as long as the training gets further; start a client that failed again."""
        step, since = self._step(), time.monotonic()
        while not what():
            if (now := self._step()) != step:
                step, since = now, time.monotonic()
            if time.monotonic() > since + _PROGRESS_S:
                said = (self.workspace.folder / "client.log").read_text()[-3000:]
                raise SystemExit(f"chaos.py: no progress within {_PROGRESS_S:g} s after {self.done}\n{said}")
            assert self._client is not None
            if self._client.poll() not in (None, 0):
                self._start()
            time.sleep(0.5)

    def _start(self) -> None:
        self._client = self.workspace.start()
        self.num_clients += 1

    def _over(self) -> bool:
        return self._client is not None and self._client.poll() == 0

    def _step(self) -> int:
        paths = self.workspace.folder.glob("runs/pretrain/*/checkpoints/step-*.pt")
        return max((int(path.stem[5:]) for path in paths), default=0)

    def _away(self) -> None:
        time.sleep(self.draws.uniform(*_AWAY_S))

    # Each returns whether there was something to hit.

    def _hit_rank(self) -> bool:
        found = self.workspace.ranks
        if not found:
            return False
        try:
            os.kill(self.draws.choice(found), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def _hit_slurmd(self) -> bool:
        return self._restart(self.draws.choice(self.cluster.nodes))

    def _hit_slurmctld(self) -> bool:
        return self._restart(CONTROLLER)

    def _restart(self, name: str) -> bool:
        self.cluster.kill(name)
        self._away()
        self.cluster.start(name)
        return True

    def _hit_client(self) -> bool:
        assert self._client is not None
        if self._client.poll() is not None:
            return False
        os.killpg(self._client.pid, signal.SIGKILL)
        self._client.wait()
        self._away()
        return True

    def _hit_mlflow(self) -> bool:
        self.mlflow.stop()
        self._away()
        self.mlflow.start()
        return True

    def _hit_postgresql(self) -> bool:
        self.postgresql.stop()
        self._away()
        self.postgresql.start()
        return True

    def _hit_link(self) -> bool:
        if not self.workspace.ranks:
            return False
        node = self.draws.choice(self.cluster.nodes)
        assert self.cluster.networks is not None
        self.cluster.networks.cut(node)
        time.sleep(self.draws.choice((2.0, 30.0)))  # shorter and longer than runtime.peer_timeout_s
        self.cluster.networks.join(node)
        return True

    def _hit_disk(self) -> bool:
        """Let the first node find a full disk in place of the checkpoints until the training says so, 20 s at most.

        Ranks that start would find no checkpoint there: it needs ranks that have just saved one.
        """
        ranks, before = self.workspace.ranks, self._step()
        if not ranks or not self._within(20, lambda: self._step() > before) or self.workspace.ranks != ranks:
            return False
        checkpoints, client_log = self.workspace.run / "checkpoints", self.workspace.folder / "client.log"
        known = client_log.read_text().count(_FULL_DISK)
        # A slurmd that was started again since has other namespaces than the ranks that it finds.
        with Path(f"/proc/{ranks[0]}/ns/mnt").open() as namespace:
            _inside(namespace, "mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(checkpoints))
            is_hit = self._within(20, lambda: client_log.read_text().count(_FULL_DISK) > known)
            _inside(namespace, "umount", "--lazy", str(checkpoints))
        return is_hit

    def _within(self, most_s: float, what: Callable[[], bool]) -> bool:
        """Wait until something is true, but not beyond the client's end; return whether it is."""
        deadline = time.monotonic() + most_s
        while not (is_true := what()) and time.monotonic() < deadline:
            if self._client is None or self._client.poll() is not None:
                return what()
            time.sleep(0.5)
        return is_true


def _inside(namespace: IO[str], *command: str) -> None:
    """Run a command in a mount namespace, which lasts at least until its file is closed."""
    number = namespace.fileno()
    subprocess.run(["nsenter", f"--mount=/proc/self/fd/{number}", *command], check=True, pass_fds=(number,))
