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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cpu_share
import repository_source
import torch
from cpu_share import CpuShares
from records import HERE, Record, add_record_arguments, device_name

from bertline.foundation.manifests import versions_of

sys.path.append(str(HERE.parent / "tests" / "support"))
import node_networks
from node_networks import NodeNetworks

RANKS = (1, 2, 4)
_PORT = 29_400
Place = tuple[int, float]
"""Number of processes and link speed in Mbit/s."""


def main() -> int:
    """Measure, print the table and the JSON line, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--vocab-size", type=int, default=8192)
    parser.add_argument("--sequences", type=int, default=8, help="of each process in a step")
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--bucket-mb", type=float, default=1.0, help="DDP's buckets: as many as base has of 25 MB")
    parser.add_argument("--mbit", type=float, nargs=3, default=(200.0, 400.0, 800.0), help="link speeds, ascending")
    parser.add_argument("--share", type=float, default=0.2, help="of a core, for each process")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=2, help="of each kind in a round")
    add_record_arguments(parser)
    arguments = parser.parse_args()
    if reason := node_networks.why_not() or cpu_share.why_not():
        sys.exit(f"scaling.py: {reason}")
    load_before = os.getloadavg()[0]
    facts, measured = measure(arguments)
    rows = rows_of(measured)
    figures = {
        **facts,
        "steps": rows,
        "load": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "cores": len(os.sched_getaffinity(0)),
        "device": device_name(torch.device("cpu")),
    }
    print(text_of(rows, figures))
    if arguments.keep:
        record = Record(
            benchmark="scaling",
            model=arguments.model,
            seq_len=arguments.length,
            variant="",
            figures=figures,
            versions=versions_of("torch"),
            arguments=arguments,
        )
        print(f"record: {record.write(Path(arguments.keep), commit=arguments.commit)}")
    print(json.dumps({**figures, "versions": versions_of("torch")}))
    return 0


def measure(arguments: argparse.Namespace) -> tuple[dict[str, Any], dict[Place, dict[str, Any]]]:
    """Return the gradients' sizes, and the medians of each number of processes at each speed."""
    rounds: dict[Place, list[dict[str, Any]]] = {}
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
    return facts, {place: _medians(found) for place, found in rounds.items()}


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


def rows_of(measured: dict[Place, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the measured steps, with the share of each that is communication."""
    rows = []
    for (ranks, mbit), found in sorted(measured.items()):
        step, computing = found["step_s"], sum(found["computing"].values())
        rows.append(
            {
                "ranks": ranks,
                "mbit": mbit,
                "step_s": round(step, 4),
                "computing_s": round(computing, 4),
                "communication_share": round(max(0.0, 1 - computing / step), 3),
                "all_reduce_s": round(found["all_reduce_s"], 4),
            }
        )
    return rows


def text_of(rows: list[dict[str, Any]], figures: dict[str, Any]) -> str:
    """Return the table that people read."""
    lines = [f"gradients {figures['gradient_bytes'] / 1e6:.1f} MB in {len(figures['buckets'])} buckets"]
    for row in rows:
        lines.append(
            f"{row['ranks']} ranks, {row['mbit']:4g} Mbit/s: step {row['step_s']:.3f} s, "
            f"computing {row['computing_s']:.3f}, communication {row['communication_share']:.0%}"
        )
    return "\n".join(lines)


def _slowest(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one round: all wait for the slowest process."""
    computing = max((each["computing"] for each in answers), key=lambda parts: sum(parts.values()))
    step = max(sum(each["step"].values()) for each in answers)
    return {
        "step_s": step,
        "computing": computing,
        **{k: max(each[k] for each in answers) for k in ("all_reduce_s", "small_s")},
    }


def _medians(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    names = rounds[0]["computing"]
    parts = {name: statistics.median(each["computing"][name] for each in rounds) for name in names}
    others = {name: statistics.median(each[name] for each in rounds) for name in ("step_s", "all_reduce_s", "small_s")}
    return {**others, "computing": parts}


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
