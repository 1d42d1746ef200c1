"""Whether a pretraining on two Slurm nodes survives random faults: the same weights, every metric once, nothing left.

    python benchmarks/chaos.py --faults 15 --seed 1              # about 20 minutes; needs root, Slurm and PostgreSQL
    python benchmarks/chaos.py --faults 3 --steps 1500 --kinds rank client

A pipeline of the smallest size (`make smoke`) is pretrained twice on clusters of two nodes, each node with a network of
its own: once undisturbed, once under faults, with MLflow on PostgreSQL. A fault hits a rank, a slurmd, the slurmctld,
the client on the login node, the MLflow server, PostgreSQL, a node's link, or a node's disk. After each one the
training must get further before the next. A client that ends with an error is started again, as its user would do.

The last line is JSON. `metrics_lost` and `metrics_doubled` compare (key, step) of the run's metrics.jsonl with what
MLflow has; `orphans` counts processes, `leftovers` unfinished files. The exit status is 1 unless the weights are the
same and all of these are 0.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import repository_source  # noqa: F401
from records import HERE

from bertline.foundation.metrics_log import read_metrics

sys.path.append(str(HERE.parent / "tests" / "support"))
import node_networks
import slurm_cluster
import slurm_workspace
from servers import MLflowServer, PostgreSQL
from slurm_cluster import CONTROLLER, Settings, SlurmCluster
from slurm_workspace import Workspace

KINDS = ("rank", "slurmd", "slurmctld", "client", "mlflow", "postgresql", "link", "disk")
EXPERIMENT = "chaos"
_AWAY_S = (1.0, 12.0)
"""Shortest and longest time that something is away."""
_PROGRESS_S = 240.0
SETTINGS = Settings(networks=True, requeue_delay_s=5, kill_wait=2, node_timeout_s=60)


def main() -> int:
    """Run both trainings, print the JSON line, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=12_000, help="of the pretraining")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    arguments = parser.parse_args()
    if reason := slurm_cluster.why_not() or node_networks.why_not():
        sys.exit(f"chaos.py: {reason}")
    with tempfile.TemporaryDirectory(prefix="bertline-chaos-") as temporary:
        folder = Path(temporary)
        template = slurm_workspace.made_once(folder / "template")
        expected = undisturbed(template, folder / "undisturbed", arguments.steps)
        found = disturbed(template, folder / "disturbed", arguments, expected)
    print(json.dumps(found))
    good = found["same_weights"] and not any(found[name] for name in ("metrics_lost", "metrics_doubled", "orphans"))
    return int(not (good and found["leftovers"] == 0 and found["faults"] == arguments.faults))


def undisturbed(template: Path, folder: Path, steps: int) -> str:
    """Return the digest of the weights of a training without faults."""
    with SlurmCluster(folder / "slurm", SETTINGS) as cluster:
        workspace = Workspace.copied(template, folder / "workspace", cluster, *training(steps))
        started = time.monotonic()
        client = workspace.start()
        if client.wait() != 0:
            sys.exit(f"chaos.py: the undisturbed training failed\n{(workspace.folder / 'client.log').read_text()}")
        print(f"undisturbed: {time.monotonic() - started:.0f} s", flush=True)
        return workspace.weights


def training(steps: int) -> list[str]:
    """Return the overrides of both trainings."""
    return [
        f"pretrain.phases=[{{steps: {steps}, max_length: 32, global_batch_size: 16}}]",
        "schedule.num_warmup_steps=10",
        f"pretrain.validate_every_steps={max(50, steps // 20)}",
        f"pretrain.checkpoint_every_steps={max(25, steps // 200)}",
        "runtime.peer_timeout_s=20",
    ]


def disturbed(template: Path, folder: Path, arguments: argparse.Namespace, expected: str) -> dict[str, object]:
    """Train under faults, and return what the JSON line says."""
    with PostgreSQL() as postgresql:
        database = postgresql.database("mlflow").replace(f":{postgresql.password_in_address}@", "@")
        mlflow = MLflowServer(
            database, str(folder / "models"), hosts="127.0.0.1:*", environment=postgresql.environment()
        )
        with mlflow, SlurmCluster(folder / "slurm", SETTINGS) as cluster:
            uri = f"http://127.0.0.1:{mlflow.port}"
            tracking = ["tracking.enabled=true", f"tracking.uri={uri}", f"tracking.experiment_name={EXPERIMENT}"]
            overrides = [*training(arguments.steps), *tracking]
            workspace = Workspace.copied(template, folder / "workspace", cluster, *overrides)
            chaos = Chaos(workspace, cluster, mlflow, postgresql, random.Random(arguments.seed))
            chaos.run(arguments.faults, arguments.kinds)
            cluster.wait_until_idle()
            time.sleep(2)  # processes that only end need a moment
            orphans = cluster.orphans()
            for pid in orphans:
                print(f"orphan {pid}: {command_of(pid)}", flush=True)
            written, recorded = written_metrics(workspace.run), recorded_metrics(uri)
            return {
                "faults": len(chaos.done),
                "same_weights": workspace.weights == expected,
                "metrics_lost": len(written - recorded.keys()),
                "metrics_doubled": sum(count - 1 for count in recorded.values()),
                "orphans": len(orphans),
                "leftovers": len([path for path in workspace.run.rglob("*") if ".tmp" in path.name]),
                "metrics": len(written),
                "jobs": len(workspace.accepted),
                "starts_of_the_job": len(workspace.starts),
                "clients": chaos.num_clients,
                "kinds": dict(Counter(chaos.done)),
                "seed": arguments.seed,
                "steps": arguments.steps,
            }


def command_of(pid: int) -> str:
    """Return the command line of a process, as far as it is still there."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "(ended)"


def written_metrics(run: Path) -> set[tuple[str, int]]:
    """Return (key, step) of all values that the training wrote."""
    return {(key, row.step) for row in read_metrics(run / "metrics.jsonl") for key in row.metrics}


def recorded_metrics(uri: str) -> Counter[tuple[str, int]]:
    """Return how often MLflow has each (key, step), in all runs of the experiment together."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    found: Counter[tuple[str, int]] = Counter()
    for run in client.search_runs([experiment.experiment_id]):
        for key in run.data.metrics:
            found.update((key, point.step) for point in client.get_metric_history(run.info.run_id, key))
    return found


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

    def run(self, faults: int, kinds: list[str]) -> None:
        """Train to the end, with so many faults on the way, as far as the training lasts."""
        self._start()
        while len(self.done) < faults:
            before = self._step()
            if not self._advanced(before):
                break
            time.sleep(self.draws.uniform(0, 5))
            kind = self.draws.choice(kinds)
            print(f"{len(self.done) + 1}: {kind} at step {self._step()}", flush=True)
            if self._over():
                break
            getattr(self, f"_hit_{kind}")()
            self.done.append(kind)
        self._wait(self._over, within_s=3600)

    def _advanced(self, before: int) -> bool:
        """Wait for a later checkpoint; return whether there is one, rather than the end."""
        self._wait(lambda: self._over() or self._step() > before, within_s=_PROGRESS_S)
        return not self._over()

    def _wait(self, what: Callable[[], bool], *, within_s: float) -> None:
        deadline = time.monotonic() + within_s
        while not what():
            if time.monotonic() > deadline:
                said = (self.workspace.folder / "client.log").read_text()[-3000:]
                raise SystemExit(f"chaos.py: no progress within {within_s:g} s after {self.done}\n{said}")
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

    def _hit_rank(self) -> None:
        found = self.workspace.ranks
        if found:
            os.kill(self.draws.choice(found), signal.SIGKILL)

    def _hit_slurmd(self) -> None:
        self._restart(self.draws.choice(self.cluster.nodes))

    def _hit_slurmctld(self) -> None:
        self._restart(CONTROLLER)

    def _restart(self, name: str) -> None:
        self.cluster.kill(name)
        self._away()
        self.cluster.start(name)

    def _hit_client(self) -> None:
        assert self._client is not None
        if self._client.poll() is None:
            os.killpg(self._client.pid, signal.SIGKILL)
            self._client.wait()
        self._away()

    def _hit_mlflow(self) -> None:
        self.mlflow.stop()
        self._away()
        self.mlflow.start()

    def _hit_postgresql(self) -> None:
        self.postgresql.stop()
        self._away()
        self.postgresql.start()

    def _hit_link(self) -> None:
        node = self.draws.choice(self.cluster.nodes)
        assert self.cluster.networks is not None
        self.cluster.networks.cut(node)
        time.sleep(self.draws.choice((2.0, 30.0)))  # shorter and longer than runtime.peer_timeout_s
        self.cluster.networks.join(node)

    def _hit_disk(self) -> None:
        """Let the first node find a full disk in place of the checkpoints, until the training has failed or 20 s on."""
        checkpoints = self.workspace.run / "checkpoints"
        self.cluster.own_disk(self.cluster.nodes[0], checkpoints, "100k")
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and self._client is not None and self._client.poll() is None:
            time.sleep(0.5)
        self.cluster.inside(self.cluster.nodes[0], "umount", "--lazy", str(checkpoints))


if __name__ == "__main__":
    sys.exit(main())
