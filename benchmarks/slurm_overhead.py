"""What submitting a job and attaching to it add to the time in the queue and of the job.

    python benchmarks/slurm_overhead.py --rounds 5 --keep

A cluster of two nodes with real daemons runs on this machine (root, `make test-slurm` installs it). In each round one
command submits a small pretraining and waits for its end, and another one attaches to it. From their times are taken:
the time from the moment Slurm accepted the job until its status says that it is finished (queue and job), and the time
of the same command on a finished run (imports, configuration, inputs, result). What is left was added. The last line is
JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import repository_source  # noqa: F401
from records import Record, add_record_arguments

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))

import slurm_workspace
from bertline.foundation.manifests import versions_of
from bertline.foundation.parallel import processor_name
from slurm_cluster import Settings, SlurmCluster, why_not
from slurm_workspace import Workspace

_LIMIT_S = 5.0


def main() -> None:
    """Run the rounds and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=600, help="of the pretraining, so that there is time to attach")
    add_record_arguments(parser)
    arguments = parser.parse_args()
    if reason := why_not():
        sys.exit(reason)
    with tempfile.TemporaryDirectory(prefix="bertline-overhead-") as name:
        folder = Path(name)
        slurm_workspace.make_template(template := folder / "template")
        with SlurmCluster(folder / "slurm", Settings()) as cluster:
            rounds = [
                measured(template, folder / f"round{number}", cluster, arguments.steps)
                for number in range(arguments.rounds)
            ]
    figures: dict[str, Any] = {
        "device": processor_name(),
        "rounds": rounds,
        "submit_added_s": statistics.median(each["submit_added_s"] for each in rounds),
        "attach_added_s": statistics.median(each["attach_added_s"] for each in rounds),
        "limit_s": _LIMIT_S,
    }
    if arguments.keep:
        slurm = cluster_version()
        Record(
            benchmark="slurm_overhead",
            model="",
            seq_len=arguments.steps,
            variant="",
            figures=figures,
            versions={**versions_of("torch"), "slurm": slurm},
            arguments=arguments,
        ).write(Path(arguments.keep), commit=arguments.commit)
    print(json.dumps({name: figures[name] for name in ("submit_added_s", "attach_added_s", "limit_s")}))


def measured(template: Path, folder: Path, cluster: SlurmCluster, steps: int) -> dict[str, float]:
    """Submit, attach, finish; return what was added, in seconds."""
    training = f"pretrain.phases=[{{steps: {steps}, max_length: 32, global_batch_size: 16}}]"
    workspace = Workspace.copied(template, folder, cluster, training, "pretrain.checkpoint_every_steps=100")
    begun = time.time()
    first = workspace.start()
    workspace.until_step(100)
    attached = time.time()
    second = workspace.start(output="second.log")
    workspace.until(lambda: workspace.said("attached to job", output="second.log"))
    follows = time.time()
    ends: dict[int, float] = {}
    while len(ends) < 2:
        for process in (first, second):
            if process.poll() is not None:
                ends.setdefault(process.pid, time.time())
        time.sleep(0.02)
    assert first.returncode == second.returncode == 0, (folder / "client.log").read_text()
    accepted = (folder / "accepted").stat().st_mtime
    finished = (workspace.run / "status.json").stat().st_mtime
    again = time.time()
    workspace.finish()
    alone = time.time() - again
    found = {
        "command_alone_s": alone,
        "queue_and_job_s": finished - accepted,
        "submit_added_s": ends[first.pid] - begun - (finished - accepted) - alone,
        "attach_added_s": (follows - attached) + (ends[second.pid] - finished) - alone,
    }
    print(", ".join(f"{name} {value:.2f}" for name, value in found.items()), flush=True)
    return found


def cluster_version() -> str:
    """Return the version of Slurm; its clients do not tell theirs without a cluster."""
    slurmd = shutil.which("slurmd", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or "slurmd"
    return subprocess.run([slurmd, "-V"], check=True, capture_output=True, text=True).stdout.split()[-1]


if __name__ == "__main__":
    main()
