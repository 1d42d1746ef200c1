"""Checks between the ranks: correct sums, bandwidth, latency, clocks."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from bertline.doctor.finding import Finding, green, note, red
from bertline.training.devices import Ranks

_PROBE_VALUES = 1024
_SMALL_BYTES, _LARGE_BYTES = 1 << 20, 64 << 20
_MEASURE_S = 1.0
_MOST_ROUNDS = 20
_PINGS = 5
_WRONG_CLOCK_S = 1.0
# A step that waits longer than this for its gradients is not worth several devices on anything but a toy.
_SLOW_GRADIENTS_S = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """What one rank measured."""

    backend: str
    wrong_ranks: tuple[int, ...]
    """Ranks whose part of a sum was wrong here."""
    bytes_per_s: float
    """Bus bandwidth of an all-reduce: 2 (n - 1) / n times its bytes, over its time."""
    latency_s: float
    """Time of an all-reduce of one number."""
    clock_offset_s: float
    """Clock of this rank minus that of rank 0."""
    clock_error_s: float
    """Half of the round trip of the message that measured it."""


def measure(store: dist.Store, ranks: Ranks, device: torch.device, *, limit_s: float) -> Measurement:
    """Form a process group over the store and measure it; every rank must call it, and it leaves the group.

    Args:
        store: Store that all ranks share.
        ranks: Place of this process.
        device: Device of this rank; a GPU is measured with NCCL, anything else with gloo.
        limit_s: Seconds after which a collective gives up.
    """
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if backend == "nccl" else "gloo",
        store=dist.PrefixStore("doctor/group", store),
        rank=ranks.rank,
        world_size=ranks.world_size,
        timeout=timedelta(seconds=max(1.0, limit_s)),
    )
    if backend == "nccl":
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")
    try:
        wrong = _wrong_ranks(ranks, device)
        bandwidth = _bandwidth(ranks, device)
        latency_s = _latency(device)
        offset_s, error_s = _clock(ranks)
    finally:
        dist.destroy_process_group()
    return Measurement(
        backend=backend,
        wrong_ranks=wrong,
        bytes_per_s=bandwidth,
        latency_s=latency_s,
        clock_offset_s=offset_s,
        clock_error_s=error_s,
    )


def _wrong_ranks(ranks: Ranks, device: torch.device) -> tuple[int, ...]:
    """Sum a tensor in which each rank has a row of its own, and return the ranks whose row is wrong."""
    mine = torch.zeros(ranks.world_size, _PROBE_VALUES, device=device)
    values = torch.arange(_PROBE_VALUES, dtype=torch.float32, device=device)
    mine[ranks.rank] = values + ranks.rank
    dist.all_reduce(mine)
    expected = values + torch.arange(ranks.world_size, device=device)[:, None]
    return tuple((mine != expected).any(dim=1).nonzero()[:, 0].tolist())


def _timed(num_bytes: int, rounds: int, device: torch.device) -> float:
    """Return the seconds of one all-reduce, the same on all ranks: the slowest rank's mean."""
    values = torch.ones(num_bytes // 4, device=device)
    dist.all_reduce(values)  # opens connections
    _wait_for(device)
    dist.barrier()
    started = time.monotonic()
    for _ in range(rounds):
        dist.all_reduce(values)
    _wait_for(device)
    took = torch.tensor([(time.monotonic() - started) / rounds], dtype=torch.float64, device=device)
    dist.all_reduce(took, op=dist.ReduceOp.MAX)
    return max(float(took), 1e-9)


def _bandwidth(ranks: Ranks, device: torch.device) -> float:
    num_bytes = _SMALL_BYTES
    took_s = _timed(num_bytes, 1, device)
    # A slow link gets a small message: all of it takes about two seconds.
    while num_bytes < _LARGE_BYTES and 4 * took_s < _MEASURE_S / 2:
        num_bytes *= 4
        took_s = _timed(num_bytes, 1, device)
    took_s = _timed(num_bytes, max(1, min(_MOST_ROUNDS, int(_MEASURE_S / 2 / took_s))), device)
    return 2 * (ranks.world_size - 1) / ranks.world_size * num_bytes / took_s


def _latency(device: torch.device) -> float:
    value = torch.ones(1, device=device)
    times = []
    for _ in range(_MOST_ROUNDS):
        started = time.monotonic()
        dist.all_reduce(value)
        _wait_for(device)
        times.append(time.monotonic() - started)
    return statistics.median(times)


def now() -> float:
    """Return the time of this machine's clock, in seconds."""
    return time.time()


def _clock(ranks: Ranks) -> tuple[float, float]:
    """Return offset and error of this rank's clock against rank 0's, by the quickest of a few messages and answers."""
    best = (0.0, 0.0)
    for rank in range(1, ranks.world_size):
        if ranks.is_first:
            for _ in range(_PINGS):
                message = torch.zeros(1, dtype=torch.float64)
                dist.recv(message, src=rank)
                message[0] = now()
                dist.send(message, dst=rank)
        elif ranks.rank == rank:
            answers = []
            for _ in range(_PINGS):
                message = torch.zeros(1, dtype=torch.float64)
                sent_s, started_s = now(), time.monotonic()
                dist.send(message, dst=0)
                dist.recv(message, src=0)
                trip_s = time.monotonic() - started_s
                answers.append((trip_s / 2, sent_s + trip_s / 2 - float(message)))
            error_s, offset_s = min(answers)
            best = (offset_s, error_s)
    return best


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def as_data(measurement: Measurement) -> dict[str, Any]:
    """Return a measurement as plain data, to be told to rank 0."""
    return asdict(measurement)


def communication_findings(
    measurements: Sequence[Mapping[str, Any]], names: Sequence[str], *, gradient_bytes: int
) -> Iterator[Finding]:
    """Judge what all ranks measured.

    Args:
        measurements: `as_data` of each rank's measurement, by rank.
        names: Each rank as messages name it: `rank 3 (node2)`.
        gradient_bytes: Bytes of the gradients that a step sums over the ranks; 0 if unknown.
    """
    wrong = sorted({rank for one in measurements for rank in one["wrong_ranks"]})
    backend = measurements[0]["backend"]
    if wrong:
        yield red(
            "all-reduce",
            f"the sum over the ranks is wrong by the part of {', '.join(names[rank] for rank in wrong)} ({backend})",
            "Do not train with this rank: take its node out and have its memory, GPU and network card tested "
            "(on GPUs, see whether NCCL_P2P_DISABLE=1 makes it right).",
        )
    else:
        yield _bandwidth_finding(measurements, gradient_bytes)
    worst = max(range(len(measurements)), key=lambda rank: abs(measurements[rank]["clock_offset_s"]))
    offset, error = measurements[worst]["clock_offset_s"], measurements[worst]["clock_error_s"]
    found = f"at most {abs(offset) * 1e3:,.1f} ms apart (± {error * 1e3:.1f} ms)"
    if abs(offset) - error > _WRONG_CLOCK_S:
        yield red(
            "clocks",
            f"the clock of {names[worst]} is {offset:+.1f} s from that of {names[0]}",
            "Synchronise the clocks of the nodes (chrony or NTP): heartbeats of runs and file dates are compared.",
            offset_s=offset,
        )
    else:
        yield green("clocks", found, offset_s=offset)


def _bandwidth_finding(measurements: Sequence[Mapping[str, Any]], gradient_bytes: int) -> Finding:
    backend, num_ranks = measurements[0]["backend"], len(measurements)
    bytes_per_s = min(one["bytes_per_s"] for one in measurements)
    latency_s = max(one["latency_s"] for one in measurements)
    found = (
        f"correct over {num_ranks} ranks with {backend}, {bytes_per_s / 1e9:.2f} GB/s, {latency_s * 1e6:,.0f} µs for a "
        "number"
    )
    figures = {"bytes_per_s": bytes_per_s, "latency_s": latency_s}
    if not gradient_bytes:
        return green("all-reduce", found, **figures)
    gradients_s = 2 * (num_ranks - 1) / num_ranks * gradient_bytes / bytes_per_s
    found = f"{found}; a step's gradients ({gradient_bytes / 1e6:,.0f} MB) take {gradients_s * 1e3:,.0f} ms"
    if gradients_s > _SLOW_GRADIENTS_S:
        return note(
            "all-reduce",
            found,
            "Use the fast network (NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME names its interface, NCCL_DEBUG=INFO shows "
            "the choice), or larger steps.",
            gradients_s=gradients_s,
            **figures,
        )
    return green("all-reduce", found, gradients_s=gradients_s, **figures)
