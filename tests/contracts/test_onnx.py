"""What export relies on in PyTorch's ONNX exporter and in onnxruntime; an upgrade that breaks it says so here.

Should the first one fail, take `dynamo=True` in `bertline.export.onnx.write_onnx` (it needs the package
`onnxscript`): it is slower and gives the same graph.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic


class Sizes(torch.nn.Module):
    """A layer, and something that depends on the length."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 6)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.linear(values) + torch.arange(values.shape[1])[None, :, None]


def write(path: Path) -> Sizes:
    model = Sizes().eval()
    torch.onnx.export(
        model,
        (torch.zeros(3, 5, 8),),
        path,
        input_names=["values"],
        output_names=["sums"],
        dynamic_axes={"values": {0: "batch", 1: "sequence"}},
        opset_version=18,
        dynamo=False,
    )
    return model


def run(path: Path, values: torch.Tensor) -> np.ndarray:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"values": values.numpy()})[
        0
    ]


def test_the_tracing_exporter_leaves_named_axes_open(tmp_path: Path) -> None:
    model = write(tmp_path / "model.onnx")
    values = torch.randn(2, 11, 8)
    np.testing.assert_allclose(run(tmp_path / "model.onnx", values), model(values).detach().numpy(), atol=1e-5)


def test_dynamic_quantization_needs_no_calibration_and_keeps_the_axes_open(tmp_path: Path) -> None:
    model = write(tmp_path / "model.onnx")
    quantize_dynamic(
        tmp_path / "model.onnx",
        tmp_path / "int8.onnx",
        weight_type=QuantType.QInt8,
        per_channel=True,
        reduce_range=True,
    )
    values = torch.randn(2, 11, 8)
    found = run(tmp_path / "int8.onnx", values)
    np.testing.assert_allclose(found, model(values).detach().numpy(), atol=0.1)
    assert not np.array_equal(found, run(tmp_path / "model.onnx", values))
