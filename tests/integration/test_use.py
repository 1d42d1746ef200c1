"""From a sweep through export to use: the numbers that were scored are the numbers that are served."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import bertline
import tiny
from bertline.export.build import build_export
from bertline.inference.predict import predict_file
from bertline.run.summary import standing_of
from bertline.sweep.run import run_sweep
from export_inputs import EXPORT
from finetuning_inputs import sweep, sweep_job, write_inputs


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One trial, one seed, exported with ONNX."""
    folder = tmp_path_factory.mktemp("use")
    write_inputs(folder)
    small = sweep(num_trials=1, num_seeds=1, random_weights_baseline="never")
    job = sweep_job(folder, folder / "run", sweep=small)
    job = dataclasses.replace(job, task=dataclasses.replace(job.task, label_efficiency_rows=()))
    run_sweep(job)
    pretrain = tiny.write_encoder(folder / "pretrain", heads=True, max_position_embeddings=32)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    build_export(
        dataclasses.replace(EXPORT, onnx=True, int8=True, int8_min_agreement=0.5),
        pretrain_folder=pretrain,
        sweep_folders={"halves": folder / "run" / "result"},
        pipeline_facts={},
        out=folder / "out",
    )
    torch.set_num_threads(threads)
    return folder


def test_what_is_served_is_what_was_scored(pipeline: Path) -> None:
    scored = pq.read_table(pipeline / "run" / "result" / "predictions.parquet").to_pydict()
    model = bertline.load(str(pipeline / "out" / "halves"), device="cpu")
    found = model.predict(scored["text"])
    assert [each.label for each in found] == scored["predicted"]
    for label in model.labels:
        expected = scored[f"probability_{label}"]
        np.testing.assert_allclose([each.probabilities[label] for each in found], expected, atol=1e-5)


def test_a_file_gets_the_same_predictions(pipeline: Path, tmp_path: Path) -> None:
    scored = pq.read_table(pipeline / "run" / "result" / "predictions.parquet").select(
        ["id", "text", "predicted", "score"]
    )
    pq.write_table(scored.select(["id", "text"]), tmp_path / "in.parquet")
    model = bertline.load(str(pipeline / "run" / "result" / "best"), device="cpu")
    predict_file(model, tmp_path / "in.parquet", tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet")
    assert found.select(["id", "text", "predicted"]).equals(scored.select(["id", "text", "predicted"]))
    np.testing.assert_allclose(found["probability"].to_numpy(), scored["score"].to_numpy(), atol=1e-5)
    assert found.schema.field("probability").type == pa.float64()


def test_the_card_and_the_standing_have_the_sweeps_scores(pipeline: Path) -> None:
    result = json.loads((pipeline / "run" / "result" / "result.json").read_text())
    card = (pipeline / "out" / "halves" / "README.md").read_text()
    arm = result["arms"]["encoder"]
    spread = "" if arm["test_std"] is None else f" ± {arm['test_std']:.3f}"
    assert f"{arm['test_mean']:.3f}{spread}" in card
    for baseline in result["baselines"].values():
        assert f"| {baseline['title']} | {baseline['dev']:.3f} | {baseline['test']:.3f} |" in card
    standing = standing_of(pipeline / "run" / "result", alias="champion")
    assert (standing.data_hash, standing.test_score) == (result["data_hash"], arm["test_mean"])
    assert standing.dev.mean == pytest.approx(arm["dev_mean"])
    assert result["conclusion"]["sentence"] in card
