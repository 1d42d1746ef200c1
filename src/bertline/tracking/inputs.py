"""Inputs of a stage as MLflow datasets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from mlflow.entities import Dataset, DatasetInput, InputTag

_MAX_DIGEST_CHARACTERS = 36  # width of MLflow's column; a DVC folder hash (32 + `.dir`) just fits


def dataset_inputs(inputs: Mapping[str, tuple[Path, str]]) -> list[DatasetInput]:
    """Convert names with paths and digests to MLflow entities. No data is read; digests identify the content."""
    return [
        DatasetInput(
            Dataset(
                name=name,
                digest=digest[:_MAX_DIGEST_CHARACTERS],
                source_type="local",
                source=json.dumps({"uri": path.as_posix()}),
            ),
            [InputTag("mlflow.data.context", "input")],
        )
        for name, (path, digest) in inputs.items()
    ]
