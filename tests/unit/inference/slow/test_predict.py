"""Predicting over files: formats in and out, errors by line, nothing half-written, memory."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bertline.inference.model import LoadedModel
from bertline.inference.predict import predict_file
from bertline.kinds.predictor import TaskPredictor


def test_memory_does_not_grow_with_the_file(
    model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The model itself is left out: PyTorch's memory is not Python's, and it would take most of the test's time.
    def constant(self: TaskPredictor, texts: list[str]) -> list[dict[str, Any]]:
        return [{"predicted": "animal", "probability": 1.0, "probabilities": [1.0, 0.0, 0.0]} for _ in texts]

    monkeypatch.setattr(TaskPredictor, "file_outputs", constant)

    def peak(num_rows: int) -> int:
        source = tmp_path / f"{num_rows}.txt.gz"
        with gzip.open(source, "wt") as handle:
            handle.writelines(lines(num_rows))
        tracemalloc.start()
        predict_file(model, source, tmp_path / "out.jsonl.gz")
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    peak(100)
    assert peak(20_000) < 1.5 * peak(4_000)


def lines(num_rows: int) -> Iterator[str]:
    return (f"the cat sat on the mat {i}\n" for i in range(num_rows))
