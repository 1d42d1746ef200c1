"""What tests of the export stage are given: its configuration, and the result of a sweep."""

from __future__ import annotations

from typing import Any

from bertline.export.config import ExportConfig
from evaluation_inputs import make_result

EXPORT = ExportConfig(
    model_name="tiny-docs", license="apache-2.0", language="en", register=False, alias="current",
    champion_alias="champion", logits_tolerance=1e-4, onnx_tolerance=1e-4, int8=False, int8_min_agreement=0.9,
    onnx=False,  # a graph takes seconds; test_kinds.py makes them
    measure_latency=False,
)  # fmt: skip


def result(**changes: Any) -> dict[str, Any]:
    """The content of a sweep's result.json."""
    return {**make_result("match"), "task": "docs_match", "labels": ["no match", "match"], **changes}
