"""What tests of the export stage are given: its configuration, the result of a sweep, and finished tasks exported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import tiny
from bertline.export.build import build_export
from bertline.export.config import ExportConfig
from bertline.foundation.manifests import write_manifest
from evaluation_inputs import make_result
from finished_tasks import MAX_LENGTH, TOKENS, Finished

EXPORT = ExportConfig(
    model_name="tiny-docs", license="apache-2.0", language="en", register=False, alias="current",
    champion_alias="champion", logits_tolerance=1e-4, onnx_tolerance=1e-4, int8=False, int8_min_agreement=0.9,
    onnx=False,  # a graph takes seconds; test_kinds.py makes them
    measure_latency=False,
)  # fmt: skip


def result(**changes: Any) -> dict[str, Any]:
    """The content of a sweep's result.json."""
    return {**make_result("match"), "task": "docs_match", "labels": ["no match", "match"], **changes}


def export_finished(config: ExportConfig, finished: Mapping[str, Finished], root: Path) -> dict[str, Any]:
    """Export finished tasks, each in a folder of its name below `root`, and an encoder, to `root/out`; return the
    figures."""
    pretrain = tiny.write_encoder(root / "pretrain", heads=True, words=TOKENS, max_position_embeddings=MAX_LENGTH)
    write_manifest(pretrain, kind="pretrain", format_version=1, content={"metrics": {}, "training": {}})
    for name, each in finished.items():
        pq.write_table(pa.table(each.table()), root / name / "predictions.parquet")
        content = result(task=name, task_kind=each.kind.config.kind, labels=list(each.kind.labels))
        (root / name / "result.json").write_text(json.dumps(content))
    sweeps = {name: root / name for name in finished}
    return build_export(config, pretrain_folder=pretrain, sweep_folders=sweeps, pipeline_facts={}, out=root / "out")
