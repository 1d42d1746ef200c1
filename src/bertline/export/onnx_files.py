"""ONNX files: the graph in fp32 with dynamic batch and sequence axes, and a copy with int8 weights."""

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

from bertline.export.views import OUTPUT_NAMES, ModelView
from bertline.foundation.errors import ArtifactError

if TYPE_CHECKING:
    import onnx
    import onnxruntime

FP32 = Path("onnx/model.onnx")
INT8 = Path("onnx/model_int8.onnx")
# LayerNormalization is a single operator since opset 17; runtimes since early 2023 (onnxruntime 1.14) read opset 18.
OPSET = 18


def write_onnx(view: ModelView, path: Path) -> None:
    """Write the graph of a model, with dynamic batch size and sequence length.

    Source file names, which exporters store for debugging, are removed: the file contains nothing about the machine and
    is reproducible.

    Raises:
        ArtifactError: The graph has a fixed size where it must be dynamic.

    Notes:
        This uses PyTorch's older exporter, which traces. The graph of the newer one (`dynamo=True`) is no faster
        (MiniLM, batch 16 of 64 tokens, one thread: 138 against 146 ms), and exporting takes 40 times as long. The
        typical error of a trace, a size that becomes a constant, is found by checks with other sizes.
    """
    import onnx

    path.parent.mkdir(parents=True, exist_ok=True)
    # Batch size and length differ from each other and from those of the checks.
    example = torch.arange(3 * 8).remainder(5).reshape(3, 8)
    with _quiet():
        torch.onnx.export(
            view,
            (example, torch.ones_like(example), torch.zeros_like(example))[: len(view.input_names)],
            path,
            input_names=list(view.input_names),
            output_names=list(OUTPUT_NAMES[view.architecture]),
            dynamic_axes={name: {0: "batch", 1: "sequence"} for name in view.input_names},
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
    """Quantize the weights of matrix products and embeddings to int8, with one scale per channel.

    Activations are quantized at run time with one scale per batch ("dynamic quantization"): no calibration data is
    needed, and results depend slightly on the other texts of the batch.

    Weights use 7 of the 8 bits: without VNNI instructions, sums of two 8-bit products overflow on x86 (onnxruntime's
    documentation, "Quantize ONNX Models", section on reduce_range).
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _quiet():
        quantize_dynamic(fp32, int8, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)


def open_session(path: Path, *, num_threads: int | None = None) -> onnxruntime.InferenceSession:
    """Open an ONNX file for inference on the CPU.

    Args:
        path: Path of the file.
        num_threads: Number of threads; None uses as many as torch, so that comparisons are fair.
    """
    import onnxruntime

    # Microsoft's Windows builds send telemetry; bertline must not.
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
    # Stale shapes of intermediate values break the quantizer; they are inferred again where needed.
    del graph.value_info[:]


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress progress output and warnings of the exporter; errors are raised."""
    before = logging.root.manager.disable
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)
