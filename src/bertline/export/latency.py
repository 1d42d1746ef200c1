"""Latency of a batch on this machine's CPU, for cards and manifests; no decision depends on it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from bertline.export.onnx_files import open_session
from bertline.export.views import INPUT_NAMES, ModelView
from bertline.foundation.processor import processor_name

BATCH_SIZES = (1, 32)
_RUNS = 7
_MIN_RUNS = 3
# A large model at full length would delay the pipeline for minutes: slow models are measured fewer times, and models
# that take seconds get no warm-up.
_ENOUGH_S = 3.0


def measure_latency(view: ModelView, files: dict[str, Path], *, max_length: int) -> dict[str, dict[str, float]]:
    """Measure the median latency of full batches in milliseconds, with sequences of `max_length` tokens.

    Args:
        view: PyTorch model, measured as `torch`.
        files: ONNX files by name.
        max_length: Number of tokens of each sequence.

    Returns:
        Milliseconds by name, then batch size: `{"torch": {"1": 12.3, "32": 210.0}, ...}`. Runs of the formats are
        interleaved, so that load on the machine affects all of them.
    """
    sessions = {name: open_session(path) for name, path in files.items()}
    measured: dict[str, dict[str, float]] = {"torch": {}, **{name: {} for name in files}}
    for batch_size in BATCH_SIZES:
        ids = torch.arange(batch_size * max_length).remainder(view_vocabulary(view)).reshape(batch_size, max_length)
        tensors = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        runs: dict[str, Callable[[], object]] = {"torch": lambda tensors=tensors: _forward(view, tensors)}  # type: ignore[misc]
        for name, session in sessions.items():
            runs[name] = lambda session=session, arrays=arrays: session.run(None, arrays)  # type: ignore[misc]
        for name, times in _in_turns(runs).items():
            measured[name][str(batch_size)] = round(1000 * statistics.median(times), 3)
    return measured


def machine_name() -> str:
    """Return the processor and the number of threads used, without which a latency is meaningless."""
    threads = torch.get_num_threads()
    return f"{processor_name()}, {threads} {'thread' if threads == 1 else 'threads'}"


def view_vocabulary(view: ModelView) -> int:
    """Return the vocabulary size of the model."""
    encoder = getattr(view.model, "bert", view.model)
    return int(encoder.vocab_size)


def _in_turns(runs: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Run all functions in turns; return the seconds of each run by name."""
    first = {name: [_seconds(run)] for name, run in runs.items()}
    if sum(times[0] for times in first.values()) > _ENOUGH_S:
        return first
    times: dict[str, list[float]] = {name: [] for name in runs}
    started = time.perf_counter()
    for turn in range(_RUNS):
        if turn >= _MIN_RUNS and time.perf_counter() - started > _ENOUGH_S:
            break
        for name, run in runs.items():
            times[name].append(_seconds(run))
    return times


def _seconds(run: Callable[[], object]) -> float:
    before = time.perf_counter()
    run()
    return time.perf_counter() - before


def _forward(view: ModelView, tensors: dict[str, torch.Tensor]) -> object:
    with torch.no_grad():
        return view(*(tensors[name] for name in INPUT_NAMES))
