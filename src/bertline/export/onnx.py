"""ONNX files of a folder: fp32 and int8, agreement with the PyTorch model, and latency."""

from __future__ import annotations

import contextlib
import io
import logging
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from timeit import timeit
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertline.encoding.sequences import Sequences, encode_texts, scoring_batches
from bertline.encoding.token_marks import case_of, with_shared_marked
from bertline.encoding.word_windows import encode_words
from bertline.export.config import ExportConfig
from bertline.export.views import CHECKED_TEXTS, Architecture, ModelView, load_view, without_padding
from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import read_json
from bertline.foundation.parallel import processor_name
from bertline.foundation.progress import warn
from bertline.modeling.bert import set_attention
from bertline.modeling.checkpoint import Checkpoint
from bertline.modeling.huggingface import CONFIG_NAME
from bertline.tasks.conll import is_visible
from bertline.tasks.entities import OUTSIDE
from bertline.tasks.metrics.correlation import spearman
from bertline.tasks.stored_rows import TaggedRows

if TYPE_CHECKING:
    import onnxruntime

FP32 = Path("onnx/model.onnx")
INT8 = Path("onnx/model_int8.onnx")
INT8_VNNI = Path("onnx/model_int8_vnni.onnx")


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
            output_names=list(view.output_names),
            dynamic_axes={name: {0: "batch", 1: "sequence"} for name in view.input_names},
            # LayerNormalization is a single operator since opset 17; runtimes since early 2023 read 18.
            opset_version=18,
            dynamo=False,
        )
    model = onnx.load(path)
    graph = model.graph
    for part in (model, graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""
    del graph.value_info[:]  # stale shapes of intermediate values break the quantizer, which infers them again
    onnx.checker.check_model(model)
    for value in graph.input:
        sizes = [size.dim_param for size in value.type.tensor_type.shape.dim]
        if not all(sizes):
            raise ArtifactError(f"{path}: {value.name} has the fixed shape {sizes}; the graph takes one size only.")
    onnx.save(model, path)


def write_int8(fp32: Path, int8: Path, *, reduce_range: bool = True) -> None:
    """Quantize the weights of matrix products and embeddings to int8, with one scale per channel.

    Activations are quantized at run time with one scale per batch ("dynamic quantization"): no calibration data is
    needed, and results depend slightly on the other texts of the batch.

    Weights use 7 of the 8 bits if `reduce_range`: without VNNI instructions, sums of two products of 8 bits, an
    unsigned activation and a weight, are cut off at 16 bits on x86 (onnxruntime's documentation, "Quantize ONNX
    Models", section on reduce_range).
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _quiet():
        quantize_dynamic(fp32, int8, weight_type=QuantType.QInt8, per_channel=True, reduce_range=reduce_range)


def open_session(path: Path) -> onnxruntime.InferenceSession:
    """Open an ONNX file for inference on the CPU, with as many threads as torch, so that comparisons are fair."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


@contextlib.contextmanager
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


Decision = Literal["label", "labels", "score", "token", "token_score", "span", "vector"]
"""Decision that is compared: `label`, the predicted label of a text; `labels`, each label of a multi-label text;
`score`, the order of texts by a score; `token`, the predicted label or vocabulary entry of each token; `token_score`,
the order of tokens by a score; `span`, start and end of an answer; `vector`, the order of pairs of texts by the cosine
of their vectors."""

# Columns of a predictions table with the model's inputs, by kind of task; `text_pair` may be missing.
_INPUT_COLUMNS = (("question", "context"), ("query", "first_document"), ("query", "predicted"), ("text", "text_pair"))
Outputs = list[tuple[NDArray[np.float32], ...]]  # the arrays of each batch


def decision_of(folder: Path, architecture: Architecture) -> Decision:
    """Return the kind of decision that a model's outputs are used for, and in which two formats must agree."""
    settings = read_json(folder / CONFIG_NAME)
    if architecture == "BertForSequenceClassification" and settings.get("problem_type") == "multi_label_classification":
        return "labels"
    decisions: dict[str, tuple[Decision, Decision]] = {  # with several labels, and with one
        "BertForSequenceClassification": ("label", "score"),
        "BertForTokenClassification": ("token", "token_score"),
        "BertForQuestionAnswering": ("span", "span"),
        "BertModel": ("vector", "vector"),
    }
    return decisions.get(architecture, ("token", "token"))[len(settings.get("id2label") or {}) == 1]


def checked_sequences(
    folder: Path, architecture: Architecture, predictions: Path, *, max_length: int, task: Any = None
) -> Sequences:
    """Encode the first test rows of a task as the model reads them, truncated or, for marked words, split into windows.

    Args:
        architecture: `BertModel` reads the two texts of a pair separately.
        predictions: The sweep's predictions.parquet. `CHECKED_TEXTS` replace it if it is missing or has no input
            columns.
        task: Configuration of the task, which says what marks the model reads besides token ids.
    """
    texts, text_pairs = list(CHECKED_TEXTS), None
    table = pq.read_table(predictions).slice(0, 256) if predictions.exists() else pa.table({})
    for first, second in _INPUT_COLUMNS:
        if {first, second} - {"text_pair"} <= {*table.column_names}:
            texts = table[first].to_pylist()
            if second in table.column_names and table[second].null_count == 0:
                text_pairs = table[second].to_pylist()
            break
    if architecture == "BertModel":
        texts, text_pairs = [*texts, *(text_pairs or ())], None
    tokenizer = Checkpoint.open(folder).tokenizer
    if getattr(task, "word_case", "plain") == "marked":
        words = [list(filter(is_visible, text.split())) for text in texts]
        rows = TaggedRows(texts, texts, words, [[OUTSIDE] * len(of_text) for of_text in words])
        return encode_words(rows, [OUTSIDE], tokenizer, max_length=max_length, overlap=0, mark=case_of).sequences
    sequences = encode_texts(texts, text_pairs, tokenizer, max_length=max_length)
    is_marked = getattr(task, "shared_tokens", "plain") == "marked"
    return with_shared_marked(sequences, tokenizer) if is_marked else sequences


def compare(
    file: Path, expected: Outputs, batches: Sequence[Mapping[str, Tensor]], decision: Decision
) -> dict[str, Any]:
    """Compare an ONNX file with the outputs of the PyTorch model in fp32.

    Returns:
        `file` and `bytes`; `max_difference`, the largest one of an output value, padding excluded; `agreement`, the
        fraction of equal decisions or, for `score`, `token_score` and `vector`, Spearman's rank correlation.
    """
    session = open_session(file)
    names = [each.name for each in session.get_inputs()]
    found = [tuple(session.run(None, {name: batch[name].numpy() for name in names})) for batch in batches]
    masks = [batch["attention_mask"].numpy().astype(bool) for batch in batches]
    differences = [
        np.abs(without_padding(one, mask) - without_padding(other, mask)).max()
        for ours, theirs, mask in zip(found, expected, masks, strict=True)
        for one, other in zip(ours, theirs, strict=True)
    ]
    one, other = (_decided(outputs, masks, decision) for outputs in (found, expected))
    agreement = float(np.mean(one == other))
    if decision in ("score", "token_score", "vector"):  # where all values on both sides are equal, no order differs
        has_order = any((values != values[:1]).any() for values in (one, other))
        agreement = spearman(one, other) if has_order else 1.0
    return {
        "file": f"{file.parent.name}/{file.name}",
        "bytes": file.stat().st_size,
        "max_difference": float(np.max(differences)),  # NumPy's max propagates NaN, which no tolerance accepts
        "agreement": round(agreement, 6),
    }


def _decided(outputs: Outputs, masks: list[NDArray[np.bool_]], decision: Decision) -> NDArray:
    """Return the decisions that outputs lead to, or the values that give an order, as one array."""
    logits = [arrays[0] for arrays in outputs]
    if decision in ("token", "token_score"):
        logits = [values[mask] for values, mask in zip(logits, masks, strict=True)]
    match decision:
        case "label" | "token":
            parts = [values.argmax(-1) for values in logits]
        case "labels":
            parts = [values > 0 for values in logits]
        case "score" | "token_score":
            parts = [values.astype(np.float64) for values in logits]
        case "span":
            parts = [_span(arrays, mask) for arrays, mask in zip(outputs, masks, strict=True)]
        case "vector":
            vectors = np.concatenate([arrays[-1] for arrays in outputs])
            directions = vectors / np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
            parts = [(directions @ directions.T)[np.triu_indices(len(directions), k=1)]]  # cosines of all pairs
    return np.concatenate([part.ravel() for part in parts])


def _span(outputs: tuple[NDArray[np.float32], ...], mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return [B], start and end of each span encoded as one integer."""
    start, end = (np.where(mask, logits, -np.inf).argmax(-1) for logits in outputs)
    return start * mask.shape[1] + end


_ENOUGH_S = 3.0  # a large model at full length would delay the pipeline for minutes: it is measured fewer times


def export_onnx(
    config: ExportConfig, folder: Path, architecture: Architecture, sequences: Sequences, *, max_length: int
) -> dict[str, Any] | None:
    """Write `onnx/model.onnx` and, if configured, `onnx/model_int8.onnx` and `onnx/model_int8_vnni.onnx`.

    An int8 file below `int8_min_agreement` is deleted, with a warning and a note in the card; the other files are not
    affected.

    Args:
        folder: Hugging Face folder with tokenizer; `onnx/` is added to it.
        sequences: What to check the files with.
        max_length: Number of tokens of a sequence in latency measurements; the graph takes all positions of the model.

    Returns:
        Facts for the manifest and the card: size, largest difference and agreement of each file compared with the
        PyTorch model, the kind of decision compared, and latencies. None, with a warning and without a file, where the
        exporter cannot trace a wrapped encoder.

    Raises:
        ArtifactError: The outputs of the fp32 file differ from the PyTorch model by more than `onnx_tolerance`.
    """
    view = load_view(folder, architecture)
    decision = decision_of(folder, architecture)
    batches = [batch for _, batch in scoring_batches(sequences, batch_size=16)]
    with torch.no_grad():
        results = [view(*(batch[name] for name in view.input_names)) for batch in batches]
    expected = [tuple(output.numpy() for output in outputs) for outputs in results]
    try:
        write_onnx(view, folder / FP32)
    except (RuntimeError, ArtifactError) as error:
        if Checkpoint.open(folder).family.can("onnx"):
            raise
        shutil.rmtree(folder / FP32.parent, ignore_errors=True)
        reason = str(error).strip().partition("\n")[0]
        warn(f"{folder.name}: no ONNX file was made, for PyTorch's exporter does not trace this encoder ({reason}).")
        return None
    fp32 = compare(folder / FP32, expected, batches, decision)
    # `not <=` also rejects NaN.
    if not fp32["max_difference"] <= config.onnx_tolerance:
        raise ArtifactError(
            f"{folder / FP32} differs from the PyTorch model by {fp32['max_difference']:.2e}, over "
            f"export.onnx_tolerance = {config.onnx_tolerance:.0e}. Nothing was exported."
        )
    files = {"onnx": folder / FP32}
    measurements: dict[str, Any] = {"decision": decision, "num_texts": len(sequences), "files": {"onnx": fp32}}
    int8_files = {"onnx_int8": INT8} if config.int8 else {}
    if config.int8 == "vnni":
        int8_files["onnx_int8_vnni"] = INT8_VNNI
    for name, path in int8_files.items():
        write_int8(folder / FP32, folder / path, reduce_range=path == INT8)
        int8 = compare(folder / path, expected, batches, decision)
        if int8["agreement"] >= config.int8_min_agreement:
            files[name] = folder / path
            measurements["files"][name] = int8
        else:
            (folder / path).unlink()
            measurements.setdefault("refused", []).append(int8)
            warn(
                f"{folder.name}: {int8['file']} agrees with the original to {int8['agreement']:.3f}, below "
                f"export.int8_min_agreement = {config.int8_min_agreement}; it is left out."
            )
    if config.measure_latency:
        measurements |= measure_latency({"torch": view}, files, max_length=max_length)
    return measurements


def measure_latency(views: Mapping[str, ModelView], files: Mapping[str, Path], *, max_length: int) -> dict[str, Any]:
    """Measure the median latency of full batches, with sequences of `max_length` tokens.

    `views` are PyTorch models with the same vocabulary by name, `files` ONNX files of the first of them.

    Returns:
        `latency_ms`, milliseconds by name, then batch size (`{"torch": {"1": 12.3, "32": 210.0}, ...}`), `machine` and
        `max_length`. Runs of the formats are interleaved, so that load on the machine affects all of them.
    """
    view = next(iter(views.values()))
    # `bertline.load` uses SDPA; the graph was traced with plain attention.
    for each in views.values():
        set_attention(each, "sdpa")
    sessions = {name: open_session(path) for name, path in files.items()}
    measured: dict[str, dict[str, float]] = {name: {} for name in (*views, *files)}
    vocab_size = getattr(view.model, "bert", view.model).vocab_size
    for batch_size in (1, 32):
        ids = torch.arange(batch_size * max_length).remainder(vocab_size).reshape(batch_size, max_length)
        tensors = ids, torch.ones_like(ids), torch.zeros_like(ids)
        arrays = {name: tensor.numpy() for name, tensor in zip(view.input_names, tensors, strict=False)}
        runs: dict[str, Callable[[], object]] = {
            name: partial(each.forward, *tensors[: len(each.input_names)]) for name, each in views.items()
        }
        runs |= {name: partial(session.run, None, arrays) for name, session in sessions.items()}
        with torch.no_grad():
            taken = _in_turns(runs)
        for name, times in taken.items():
            measured[name][str(batch_size)] = round(1000 * float(np.median(times)), 3)
    threads = torch.get_num_threads()  # without processor and threads, a latency is meaningless
    machine = f"{processor_name()}, {threads} {'thread' if threads == 1 else 'threads'}"
    return {"latency_ms": measured, "machine": machine, "max_length": max_length}


def _in_turns(runs: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Run all functions in turns; return the seconds of each run by name, without the first where there are more."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    started = time.perf_counter()
    for _ in range(8):
        for name, run in runs.items():
            times[name].append(timeit(run, number=1))
        if time.perf_counter() - started > _ENOUGH_S:
            break
    return {name: each[1:] or each for name, each in times.items()}
