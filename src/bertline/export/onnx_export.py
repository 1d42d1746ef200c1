"""Export of a folder's ONNX files, with checks against the PyTorch model and latency measurements."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bertline.export.agreement import Agreement, compare, decision_of, onnx_outputs, torch_outputs
from bertline.export.config import ExportConfig
from bertline.export.onnx_files import FP32, INT8, open_session, write_int8, write_onnx
from bertline.export.views import Architecture, ModelView, load_view
from bertline.finetuning.encoding import Sequences
from bertline.foundation.errors import ArtifactError
from bertline.foundation.processor import processor_name
from bertline.foundation.progress import warn
from bertline.modeling.bert import set_attention
from bertline.modeling.families import family_of

BATCH_SIZES = (1, 32)
_RUNS = 7
_MIN_RUNS = 3
# A large model at full length would delay the pipeline for minutes: slow models are measured fewer times, and models
# that take seconds get no warm-up.
_ENOUGH_S = 3.0


def export_onnx(
    config: ExportConfig, folder: Path, architecture: Architecture, sequences: Sequences, *, max_length: int
) -> dict[str, Any] | None:
    """Write `onnx/model.onnx` and, if configured, `onnx/model_int8.onnx`.

    An int8 file below `int8_min_agreement` is deleted, with a warning and a note in the card; the other files are not
    affected.

    Args:
        config: Formats and tolerances.
        folder: Hugging Face folder with tokenizer; `onnx/` is added to it.
        architecture: Architecture, which determines the outputs of the graph.
        sequences: Sequences to check the files with.
        max_length: Number of tokens of a sequence in latency measurements. The graph supports all positions of the
            model.

    Returns:
        Facts for the manifest and the card: size, largest difference and agreement of each file compared with the
        PyTorch model, the kind of decision compared, and latencies. None, with a warning and without a file, where the
        exporter cannot trace a wrapped encoder.

    Raises:
        ArtifactError: The outputs of the fp32 file differ from the PyTorch model by more than `onnx_tolerance`.
    """
    view = load_view(folder, architecture)
    decision = decision_of(folder, architecture)
    expected = torch_outputs(view, sequences)

    try:
        write_onnx(view, folder / FP32)
    except (RuntimeError, ArtifactError) as error:
        if family_of(folder)[0].wrapping is None:
            raise
        shutil.rmtree(folder / FP32.parent, ignore_errors=True)
        reason = str(error).strip().partition("\n")[0]
        warn(f"{folder.name}: no ONNX file was made, for PyTorch's exporter does not trace this encoder ({reason}).")
        return None
    fp32 = compare(onnx_outputs(folder / FP32, sequences), expected, sequences, decision)
    # `not <=` also rejects NaN.
    if not fp32.max_difference <= config.onnx_tolerance:
        raise ArtifactError(
            f"{folder / FP32} differs from the PyTorch model by {fp32.max_difference:.2e}, over export.onnx_tolerance "
            f"= {config.onnx_tolerance:.0e}. Nothing was exported."
        )
    files = {"onnx": folder / FP32}
    found: dict[str, Any] = {
        "decision": decision,
        "num_texts": len(sequences),
        "files": {"onnx": _facts(FP32, folder, fp32)},
    }
    if config.int8:
        write_int8(folder / FP32, folder / INT8)
        int8 = compare(onnx_outputs(folder / INT8, sequences), expected, sequences, decision)
        facts = _facts(INT8, folder, int8)
        if int8.decisions >= config.int8_min_agreement:
            files["onnx_int8"] = folder / INT8
            found["files"]["onnx_int8"] = facts
        else:
            (folder / INT8).unlink()
            found["refused_int8"] = facts
            warn(
                f"{folder.name}: the int8 model agrees with the original to {int8.decisions:.3f}, below "
                f"export.int8_min_agreement = {config.int8_min_agreement}; it is left out."
            )
    if config.measure_latency:
        found |= measure_latency(view, files, max_length=max_length)
    return found


def _facts(file: Path, folder: Path, agreement: Agreement) -> dict[str, Any]:
    return {
        "file": file.as_posix(),
        "bytes": (folder / file).stat().st_size,
        "max_difference": agreement.max_difference,
        "agreement": round(agreement.decisions, 6),
    }


def measure_latency(view: ModelView, files: dict[str, Path], *, max_length: int) -> dict[str, Any]:
    """Measure the median latency of full batches, with sequences of `max_length` tokens.

    Args:
        view: PyTorch model, measured as `torch`.
        files: ONNX files by name.
        max_length: Number of tokens of each sequence.

    Returns:
        `latency_ms`, milliseconds by name, then batch size (`{"torch": {"1": 12.3, "32": 210.0}, ...}`), `machine` and
        `max_length`. Runs of the formats are interleaved, so that load on the machine affects all of them.
    """
    # `bertline.load` uses SDPA; the graph was traced with plain attention.
    set_attention(view, "sdpa")
    sessions = {name: open_session(path) for name, path in files.items()}
    measured: dict[str, dict[str, float]] = {name: {} for name in ("torch", *files)}
    vocab_size = getattr(view.model, "bert", view.model).vocab_size
    for batch_size in BATCH_SIZES:
        ids = torch.arange(batch_size * max_length).remainder(vocab_size).reshape(batch_size, max_length)
        tensors = (ids, torch.ones_like(ids), torch.zeros_like(ids))[: len(view.input_names)]
        arrays = {name: tensor.numpy() for name, tensor in zip(view.input_names, tensors, strict=True)}
        runs: dict[str, Callable[[], object]] = {"torch": partial(view.forward, *tensors)}
        runs |= {name: partial(session.run, None, arrays) for name, session in sessions.items()}
        with torch.no_grad():
            taken = _in_turns(runs)
        for name, times in taken.items():
            measured[name][str(batch_size)] = round(1000 * statistics.median(times), 3)
    return {"latency_ms": measured, "machine": machine_name(), "max_length": max_length}


def machine_name() -> str:
    """Return the processor and the number of threads used, without which a latency is meaningless."""
    threads = torch.get_num_threads()
    return f"{processor_name()}, {threads} {'thread' if threads == 1 else 'threads'}"


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
