"""How a training step scales over processes: measured for 1, 2 and 4 at three link speeds.

    python benchmarks/scaling.py             # about four minutes; needs root, for network namespaces
    python benchmarks/scaling.py --keep      # write the record

Each process has a network of its own, on a bridge of this machine, and sends at the given speed at most (tbf). Its
computing thread gets a fixed share of a core (control groups), so that four compute as fast as one, as devices of a
cluster do. All processes stay; rounds of measurements go through sizes and speeds by turns, so that all of them meet
the same load, and medians over the rounds count. Each round also measures computing without communication.

The share of communication is what a step takes longer than computing alone. The planner has no model of the link: it
takes one stated efficiency (`bertline.planning.EFFICIENCY_OF_SEVERAL`).

The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import repository_source
import torch
from measurements import HERE, Measurement, device_name, parser_of

from bertline.foundation.manifests import versions_of

sys.path.append(str(HERE.parent / "tests" / "support"))
import node_networks
from node_networks import NodeNetworks

RANKS = (1, 2, 4)
_PORT = 29_400
_CGROUPS = Path("/sys/fs/cgroup")
_PERIOD_US = 10_000
"""Short, so that a computation of milliseconds is slowed down evenly."""
Place = tuple[int, float]
"""Number of processes and link speed in Mbit/s."""


def main() -> int:
    """Measure, print the table and the JSON line, and return the exit status."""
    parser = parser_of(__doc__)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--vocab-size", type=int, default=8192)
    parser.add_argument("--sequences", type=int, default=8, help="of each process in a step")
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--bucket-mb", type=float, default=1.0, help="DDP's buckets: as many as base has of 25 MB")
    parser.add_argument("--mbit", type=float, nargs=3, default=(200.0, 400.0, 800.0), help="link speeds, ascending")
    parser.add_argument("--share", type=float, default=0.2, help="of a core, for each process")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=2, help="of each kind in a round")
    arguments = parser.parse_args()
    if reason := node_networks.why_not():
        sys.exit(f"scaling.py: {reason}")
    load_before = os.getloadavg()[0]
    facts, rounds = measure(arguments)
    figures = {
        **facts,
        "steps": rows_of(rounds),
        "load": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "cores": len(os.sched_getaffinity(0)),
        "device": device_name(torch.device("cpu")),
    }
    if arguments.keep:
        record = Measurement(
            benchmark="scaling", model=arguments.model, seq_len=arguments.length, variant="", figures=figures,
            versions=versions_of("torch"), arguments=arguments,
        )  # fmt: skip
        print(f"record: {record.write(Path(arguments.keep), commit=arguments.commit)}")
    print(json.dumps(figures))
    return 0


class CpuShares:
    """Control groups of Linux (version 1 or 2; needs root) for threads, each of which gets a share of one core."""

    def __init__(self, share: float) -> None:
        """Take a share, between 0.1 and the number of cores."""
        self.share = share
        self._is_old = (_CGROUPS / "cpu" / "cpu.cfs_quota_us").exists()
        self._folder = _CGROUPS / ("cpu" if self._is_old else "") / f"bertline-{os.getpid()}"
        self._made: list[Path] = []

    def add(self, pid: int) -> None:
        """Give the first thread of a process a share of its own; its other threads have all that is free.

        On the CPU the first thread computes, backward too, and other threads communicate: as a GPU's network adapter,
        they do not wait for computing.
        """
        group = self._folder / str(pid)
        group.mkdir()
        self._made.append(group)
        quota = int(self.share * _PERIOD_US)
        if self._is_old:
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
            (group / "tasks").write_text(str(pid))
        else:
            (group / "cgroup.type").write_text("threaded")
            (self._folder / "cgroup.procs").write_text(str(pid))
            (self._folder / "cgroup.subtree_control").write_text("+cpu")
            (group / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
            (group / "cgroup.threads").write_text(str(pid))

    def __enter__(self) -> CpuShares:
        """Make the folder of the groups."""
        self._folder.mkdir()
        self._made.append(self._folder)
        if not self._is_old and "cpu" not in (self._folder / "cgroup.controllers").read_text().split():
            self._folder.rmdir()
            raise OSError(f"{self._folder.parent} does not pass the controller cpu on")
        # Before other work on this machine, so that the share is had; together they take no more than their shares.
        (self._folder / ("cpu.shares" if self._is_old else "cpu.weight")).write_text("10000")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Remove the groups, whose processes must have ended."""
        for group in reversed(self._made):
            for _ in range(50):  # the kernel empties a group a little later than its processes end
                try:
                    group.rmdir()
                    break
                except OSError:
                    time.sleep(0.1)


def measure(arguments: argparse.Namespace) -> tuple[dict[str, Any], dict[Place, list[dict[str, float]]]]:
    """Return the gradients' sizes, and the rounds of each number of processes at each speed."""
    rounds: dict[Place, list[dict[str, float]]] = {}
    nodes = tuple(f"node{index}" for index in range(max(RANKS)))
    shares, networks = CpuShares(arguments.share), NodeNetworks(nodes)
    with shares, networks, processes(networks, arguments) as (facts, groups):
        for process in (each for group in groups.values() for each in group):
            shares.add(process.pid)
        for _ in range(arguments.rounds):
            for mbit in arguments.mbit:
                for node in nodes:
                    networks.slow(node, 1e6 * mbit)
                for ranks, group in groups.items():
                    rounds.setdefault((ranks, mbit), []).append(_slowest(_ask(group, str(arguments.steps))))
    return facts, rounds


@contextmanager
def processes(
    networks: NodeNetworks, arguments: argparse.Namespace
) -> Iterator[tuple[dict[str, Any], dict[int, list[subprocess.Popen[str]]]]]:
    """Start a group of processes for each of `RANKS`; they wait between measurements."""
    names = ("model", "vocab_size", "sequences", "length", "bucket_mb")
    settings = {name: getattr(arguments, name) for name in names}
    groups: dict[int, list[subprocess.Popen[str]]] = {}
    try:
        for ranks in RANKS:
            address = {"MASTER_ADDR": networks.address("node0"), "MASTER_PORT": str(_PORT + ranks)}
            environment = {**os.environ, **address, "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
            environment["PYTHONPATH"] = str(repository_source.SOURCE)
            groups[ranks] = [
                subprocess.Popen(
                    [*networks.enter(node), sys.executable, str(HERE / "scaling_rank.py")],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=environment,
                )
                for node in networks.nodes[:ranks]
            ]
            for rank, process in enumerate(groups[ranks]):
                _say(process, json.dumps({**settings, "rank": rank, "ranks": ranks}))
            facts = _answers(groups[ranks])[0]
        yield facts, groups
    finally:
        for process in (each for group in groups.values() for each in group):
            process.kill()
            process.wait()


def rows_of(rounds: dict[Place, list[dict[str, float]]]) -> list[dict[str, Any]]:
    """Return the medians over the rounds, with the share of each step that is communication."""
    rows = []
    for (ranks, mbit), found in sorted(rounds.items()):
        step, computing = (statistics.median(one[name] for one in found) for name in ("step_s", "computing_s"))
        share = round(max(0.0, 1 - computing / step), 3)
        shown = {"step_s": round(step, 4), "computing_s": round(computing, 4), "communication_share": share}
        rows.append({"ranks": ranks, "mbit": mbit, **shown})
        print(f"{ranks} ranks, {mbit:4g} Mbit/s: step {step:.3f} s, communication {share:.0%}")
    return rows


def _slowest(answers: list[dict[str, float]]) -> dict[str, float]:
    """Return one round: all wait for the slowest process."""
    return {name: max(each[name] for each in answers) for name in ("step_s", "computing_s")}


def _ask(group: list[subprocess.Popen[str]], line: str) -> list[dict[str, Any]]:
    for process in group:
        _say(process, line)
    return _answers(group)


def _say(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    print(line, file=process.stdin, flush=True)


def _answers(group: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    lines = [process.stdout.readline() for process in group if process.stdout is not None]
    if not all(lines):
        sys.exit("scaling.py: a process has ended; what it said stands above")
    return [json.loads(line) for line in lines]


if __name__ == "__main__":
    sys.exit(main())
