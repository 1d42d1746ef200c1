"""Whether a pretraining on two Slurm nodes survives random faults: the same weights, every metric once, nothing left.

    python benchmarks/chaos.py --faults 15 --seed 1              # 20 to 25 minutes; needs root, Slurm and PostgreSQL
    python benchmarks/chaos.py --faults 3 --steps 1500 --kinds rank client

A pipeline of the smallest size (`make smoke`) is pretrained twice on clusters of two nodes, each node with a network of
its own: once undisturbed, once under faults, with MLflow on PostgreSQL. A fault hits a rank, a slurmd, the slurmctld,
the client on the login node, the MLflow server, PostgreSQL, a node's link, or a node's disk. One is due in each equal
part of the training, at a random step; after each one the training must get further before the next. A client that
ends with an error is started again, as its user would do.

Kinds take turns in random order. A fault that finds nothing to hit (no rank runs, the client has ended, nothing was
written to the full disk) does not count, and one of another kind takes its place.

The last line is JSON. `metrics_lost` counts (key, step) of train/* and val/* that the undisturbed run has and the
disturbed run's metrics.jsonl or MLflow lacks, and values of that file that MLflow lacks; `metrics_doubled` counts
repetitions in the file and in MLflow, `orphans` processes, `leftovers` unfinished files. The exit
status is 1 unless the weights are the same, all of these are 0, and so many faults were done.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import repository_source  # noqa: F401
from chaos_faults import KINDS, Chaos
from measurements import HERE, Measurement, parser_of, variant_of

from bertline.foundation.manifests import versions_of
from bertline.foundation.metrics_log import read_metrics
from bertline.foundation.parallel import processor_name

sys.path.append(str(HERE.parent / "tests" / "support"))
import node_networks
import slurm_cluster
import slurm_workspace
from servers import MLflowServer, PostgreSQL
from slurm_cluster import Settings, SlurmCluster
from slurm_workspace import Workspace

EXPERIMENT = "chaos"
# `.NAME.RANDOM` of foundation/files.py, half checkpoints.
_UNFINISHED = re.compile(r"\..*\.[0-9a-z_]{8}|.*\.part")
Point = tuple[str, int]
"""Key and step of a metric."""
SETTINGS = Settings(networks=True, requeue_delay_s=5, kill_wait=2, node_timeout_s=60)


def main() -> int:
    """Run both trainings, print the JSON line, and return the exit status."""
    parser = parser_of(__doc__)
    parser.add_argument("--faults", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=24_000, help="of the pretraining")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    arguments = parser.parse_args()
    if reason := slurm_cluster.why_not() or node_networks.why_not():
        sys.exit(f"chaos.py: {reason}")
    with tempfile.TemporaryDirectory(prefix="bertline-chaos-") as temporary:
        folder = Path(temporary)
        slurm_workspace.make_template(template := folder / "template")
        expected = undisturbed(template, folder / "undisturbed", arguments.steps)
        found = disturbed(template, folder / "disturbed", arguments, expected)
    print(json.dumps(found), flush=True)
    if arguments.keep:
        Measurement(
            benchmark="chaos", model="smoke", seq_len=32, figures={"device": processor_name(), **found},
            variant=variant_of(parser, arguments, ["faults", "seed", "steps", "kinds"]), arguments=arguments,
            versions=versions_of("torch", "pytorch-lightning", "mlflow"),
        ).write(Path(arguments.keep), commit=arguments.commit)  # fmt: skip
    wrong = ("metrics_lost", "metrics_doubled", "orphans", "leftovers")
    good = found["same_weights"] and not any(found[name] for name in wrong)
    return int(not (good and found["faults"] == arguments.faults))


@dataclass(frozen=True, kw_only=True)
class Undisturbed:
    """What a training without faults gives."""

    weights: str
    """Their digest."""
    metrics: frozenset[Point]
    """Those that do not depend on time."""
    took_s: float


def undisturbed(template: Path, folder: Path, steps: int) -> Undisturbed:
    """Train without faults."""
    with SlurmCluster(folder / "slurm", SETTINGS) as cluster:
        workspace = Workspace.copied(template, folder / "workspace", cluster, *training(steps))
        started = time.monotonic()
        client = workspace.start()
        if client.wait() != 0:
            sys.exit(f"chaos.py: the undisturbed training failed\n{(workspace.folder / 'client.log').read_text()}")
        took_s = time.monotonic() - started
        print(f"undisturbed: {took_s:.0f} s", flush=True)
        metrics = frozenset(
            point for point in written_metrics(workspace.run) if point[0].startswith(("train/", "val/"))
        )
        return Undisturbed(weights=workspace.weights, metrics=metrics, took_s=took_s)


def training(steps: int) -> list[str]:
    """Return the overrides of both trainings."""
    return [
        f"pretrain.phases=[{{steps: {steps}, max_length: 32, global_batch_size: 16}}]",
        "schedule.num_warmup_steps=10",
        f"pretrain.validate_every_steps={max(50, steps // 20)}",
        f"pretrain.checkpoint_every_steps={max(25, steps // 200)}",
        "runtime.peer_timeout_s=20",
    ]


def disturbed(template: Path, folder: Path, arguments: argparse.Namespace, expected: Undisturbed) -> dict[str, object]:
    """Train under faults, and return what the JSON line says."""
    with PostgreSQL() as postgresql:
        database = postgresql.database("mlflow").replace(f":{postgresql.password_in_address}@", "@")
        mlflow = MLflowServer(database, str(folder / "models"), environment=postgresql.environment())
        with mlflow, SlurmCluster(folder / "slurm", SETTINGS) as cluster:
            tracking = ["tracking.enabled=true", f"tracking.uri={mlflow.uri}", f"tracking.experiment_name={EXPERIMENT}"]
            overrides = [*training(arguments.steps), *tracking]
            workspace = Workspace.copied(template, folder / "workspace", cluster, *overrides)
            chaos = Chaos(workspace, cluster, mlflow, postgresql, random.Random(arguments.seed))
            started = time.monotonic()
            chaos.run(arguments.faults, arguments.kinds, arguments.steps)
            took_s = time.monotonic() - started
            cluster.wait_until_idle()
            time.sleep(2)  # processes that only end need a moment
            orphans = cluster.orphans()
            for pid in orphans:
                print(f"orphan {pid}", flush=True)
            unfinished = leftovers(workspace.folder / "runs") + leftovers(workspace.folder / "artifacts")
            for path in unfinished:
                print(f"leftover {path}", flush=True)
            written, recorded = written_metrics(workspace.run), recorded_metrics(mlflow.uri)
            return {
                "faults": len(chaos.done),
                "same_weights": workspace.weights == expected.weights,
                "metrics_lost": len(lost(expected.metrics, written, recorded)),
                "metrics_doubled": doubled(written) + doubled(recorded),
                "orphans": len(orphans),
                "leftovers": len(unfinished),
                "metrics": len(written),
                "jobs": len(workspace.accepted),
                "starts_of_the_job": len(workspace.starts),
                "clients": chaos.num_clients,
                "kinds": dict(Counter(chaos.done)),
                "seed": arguments.seed,
                "steps": arguments.steps,
                "undisturbed_s": round(expected.took_s),
                "disturbed_s": round(took_s),
            }


def leftovers(folder: Path) -> list[Path]:
    """Return temporary files and folders that should be gone when nobody works, and files of owners."""
    return [path for path in folder.rglob("*") if _UNFINISHED.fullmatch(path.name)]


def lost(expected: frozenset[Point], written: Counter[Point], recorded: Counter[Point]) -> frozenset[Point]:
    """Return what is expected and not in both of the file and MLflow, and what the file has and MLflow lacks."""
    return (expected - written.keys()) | (expected - recorded.keys()) | (written.keys() - recorded.keys())


def doubled(found: Counter[Point]) -> int:
    """Return the number of repetitions."""
    return found.total() - len(found)


def written_metrics(run: Path) -> Counter[Point]:
    """Return how often the run's metrics.jsonl has each (key, step)."""
    return Counter((key, row.step) for row in read_metrics(run / "metrics.jsonl") for key in row.metrics)


def recorded_metrics(uri: str) -> Counter[Point]:
    """Return how often MLflow has each (key, step), in all runs of the experiment together."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    found: Counter[Point] = Counter()
    for run in client.search_runs([experiment.experiment_id]):
        for key in run.data.metrics:
            found.update((key, point.step) for point in client.get_metric_history(run.info.run_id, key))
    return found


if __name__ == "__main__":
    sys.exit(main())
