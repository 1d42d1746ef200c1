"""Export of a folder's ONNX files, with checks against the PyTorch model and latency measurements."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertline.export.agreement import Decision, Marks, compare, encoded_texts, onnx_outputs, torch_outputs
from bertline.export.config import ExportConfig
from bertline.export.latency import machine_name, measure_latency
from bertline.export.onnx_files import FP32, INT8, write_int8, write_onnx
from bertline.export.views import Architecture, load_view
from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import read_json
from bertline.foundation.progress import warn
from bertline.modeling.bert import set_attention
from bertline.modeling.huggingface import CONFIG_NAME
from bertline.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True, slots=True)
class OnnxRequest:
    """Model to export, and texts to check it with."""

    folder: Path
    """Hugging Face folder with tokenizer; `onnx/` is added to it."""
    architecture: Architecture
    """Architecture, which determines the outputs of the graph."""
    max_length: int
    """Maximum number of tokens of a sequence in checks and latency measurements. The graph supports all positions of
    the model."""
    texts: list[str]
    text_pairs: list[str] | None
    marks: Marks = "none"
    """Kind of token marks that the model reads."""


def export_onnx(request: OnnxRequest, config: ExportConfig) -> dict[str, Any]:
    """Write `onnx/model.onnx` and, if configured, `onnx/model_int8.onnx`.

    An int8 file below `int8_min_agreement` is deleted, with a warning and a note in the card; the other files are not
    affected.

    Returns:
        Facts for the manifest and the card: size, largest difference and agreement of each file compared with the
        PyTorch model, the kind of decision compared, and latencies.

    Raises:
        ArtifactError: The outputs of the fp32 file differ from the PyTorch model by more than `onnx_tolerance`.
    """
    folder = request.folder
    view = load_view(folder, request.architecture)
    decision = decision_of(folder, request.architecture)
    sequences = encoded_texts(
        request.texts,
        request.text_pairs,
        Tokenizer.load(folder),
        max_length=request.max_length,
        marks=request.marks,
    )
    expected = torch_outputs(view, sequences)

    write_onnx(view, folder / FP32)
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
        "files": {"onnx": _facts(FP32, folder, fp32.max_difference, fp32.decisions)},
    }
    if config.int8:
        write_int8(folder / FP32, folder / INT8)
        int8 = compare(onnx_outputs(folder / INT8, sequences), expected, sequences, decision)
        facts = _facts(INT8, folder, int8.max_difference, int8.decisions)
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
        # `bertline.load` uses SDPA; the graph was traced with plain attention.
        set_attention(view, "sdpa")
        found["latency_ms"] = measure_latency(view, files, max_length=request.max_length)
        found["machine"] = machine_name()
        found["max_length"] = request.max_length
    return found


def decision_of(folder: Path, architecture: Architecture) -> Decision:
    """Return the kind of decision that a model's outputs are used for, and in which two formats must agree."""
    settings = read_json(folder / CONFIG_NAME)
    single = len(settings.get("id2label") or {}) == 1
    match architecture:
        case "BertForSequenceClassification":
            if settings.get("problem_type") == "multi_label_classification":
                return "labels"
            return "score" if single else "label"
        case "BertForTokenClassification":
            return "token_score" if single else "token"
        case "BertForQuestionAnswering":
            return "span"
        case "BertModel":
            return "vector"
        case _:
            return "token"


def _facts(file: Path, folder: Path, difference: float, decisions: float) -> dict[str, Any]:
    return {
        "file": file.as_posix(),
        "bytes": (folder / file).stat().st_size,
        "max_difference": difference,
        "agreement": round(decisions, 6),
    }
