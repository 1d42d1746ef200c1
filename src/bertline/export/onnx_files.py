"""ONNX files: the graph in fp32 with dynamic batch and sequence axes, and its weights in int8."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from bertline.export.views import INPUT_NAMES, OUTPUT_NAMES, ModelView
from bertline.foundation.errors import ArtifactError

if TYPE_CHECKING:
    import onnx
    import onnxruntime

FP32 = Path("onnx/model.onnx")
INT8 = Path("onnx/model_int8.onnx")
# LayerNormalization is one operator from 17 on; every runtime since early 2023 (onnxruntime 1.14) reads 18.
OPSET = 18


def write_onnx(view: ModelView, path: Path) -> None:
    """Write the model's graph; batch and sequence length stay open.

    Names of source files, which exporters keep for debugging, are taken out: the file says nothing of the machine it
    was made on and is the same each time.

    Raises:
        ArtifactError: The graph has a fixed size where it must not.

    Notes:
        By PyTorch's older exporter, which traces. The newer one (`dynamo=True`) gives a graph that is no faster
        (MiniLM, batch 16 of 64 tokens, one thread: 138 against 146 ms) and takes 40 times as long to make it. What a
        trace could get wrong, a size that it takes for a constant, is found by the checks in other sizes.
    """
    import onnx

    path.parent.mkdir(parents=True, exist_ok=True)
    # Sizes that differ from each other and from those of the checks.
    example = torch.arange(3 * 8).remainder(5).reshape(3, 8)
    with _quiet():
        torch.onnx.export(
            view,
            (example, torch.ones_like(example), torch.zeros_like(example)),
            path,
            input_names=list(INPUT_NAMES),
            output_names=list(OUTPUT_NAMES[view.architecture]),
            dynamic_axes={name: {0: "batch", 1: "sequence"} for name in INPUT_NAMES},
            opset_version=OPSET,
            dynamo=False,
        )
    graph = onnx.load(path)
    _forget_origin(graph)
    onnx.checker.check_model(graph)
    for value in graph.graph.input:
        sizes = [size.dim_param for size in value.type.tensor_type.shape.dim]
        if not all(sizes):
            raise ArtifactError(f"{path}: {value.name} has the fixed shape {sizes}; the graph takes one size only.")
    onnx.save(graph, path)


def write_int8(fp32: Path, int8: Path) -> None:
    """Quantise the weights of matrix products and embeddings to int8, a scale a channel.

    Activations are quantised as they come, with one scale for a whole batch ("dynamic quantization"), so that no
    calibration data is needed and a result depends a little on its company in the batch.

    Weights take 7 of the 8 bits: without VNNI instructions, sums of two products of 8 bits overflow on x86
    (onnxruntime's documentation, "Quantize ONNX Models", section on reduce_range).
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _quiet():
        quantize_dynamic(fp32, int8, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)


def open_session(path: Path, *, num_threads: int | None = None) -> onnxruntime.InferenceSession:
    """An ONNX file, ready to run on the CPU.

    Args:
        path: The file.
        num_threads: None takes as many as torch does, so that comparisons are fair.
    """
    import onnxruntime

    # Microsoft's builds for Windows report use; nothing of ours phones home.
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads or torch.get_num_threads()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _forget_origin(model: onnx.ModelProto) -> None:
    graph = model.graph
    for part in (model, graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""
    # Shapes of intermediate values are inferred again by whoever needs them; stale ones break the quantizer.
    del graph.value_info[:]


@contextmanager
def _quiet() -> Iterator[None]:
    """Progress and advice of the exporter say nothing to a user; what goes wrong is raised."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "root")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
