"""What a stage read, as MLflow datasets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from mlflow.entities import Dataset, DatasetInput, InputTag

_MAX_DIGEST_CHARACTERS = 36  # MLflow's column; a DVC folder hash (32 and `.dir`) just fits


def dataset_inputs(inputs: Mapping[str, tuple[Path, str]]) -> list[DatasetInput]:
    """Names with paths and digests as entities. Nothing is read or copied: the digest says which content it was."""
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
