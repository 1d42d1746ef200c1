"""What export relies on in PyTorch's ONNX exporter and in onnxruntime; an upgrade that breaks it says so here.

Should the first one fail, take `dynamo=True` in `bertline.export.onnx.write_onnx` (it needs the package
`onnxscript`): it is slower and gives the same graph.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_neither_needs_onnxscript(tmp_path: Path) -> None:
    code = f"""
import sys
sys.modules["onnxscript"] = None
import torch
torch.onnx.export(torch.nn.Linear(2, 2), (torch.zeros(1, 2),), {str(tmp_path / "m.onnx")!r}, dynamo=False)
from onnxruntime.quantization import quantize_dynamic
quantize_dynamic({str(tmp_path / "m.onnx")!r}, {str(tmp_path / "q.onnx")!r})
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
