"""The benchmarks that people run by hand still run, in their smallest form and with no more than they say they need."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from smoke import succeeded

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
# What an image with torch, Lightning, transformers and accelerate lacks: to Python, an entry None is not installed.
BARE = """
import sys
missing = "bm25s datasets dvc faiss hydra mlflow nanotoken omegaconf optuna pyarrow pydantic"
sys.modules.update(dict.fromkeys(missing.split()))
"""


@pytest.fixture(autouse=True)
def modules_of_benchmarks(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.fixture
def bare(tmp_path) -> dict[str, str]:
    """The environment of a Python that finds what a GPU image has, and neither bertline nor its other needs."""
    folder = tmp_path / "bare"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BARE, encoding="utf-8")
    return {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}


def call(environment: dict[str, str], script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, BENCHMARKS / script, *arguments], env=environment, capture_output=True, text=True, timeout=600
    )


def figures_of(done: subprocess.CompletedProcess[str]) -> dict:
    return json.loads(succeeded(done).stdout.splitlines()[-1])


def test_pretraining_step_needs_no_more_than_a_gpu_image_and_compares_three_sides(bare, tmp_path):
    small = "--model tiny --vocab-size 64 --seq-len 16 --batch-size 4 --steps 2 --rounds 2 --threads 1 --workers 1"
    options = [*small.split(), "--device", "cpu", "--set", "runtime.compile=off", "--keep", str(tmp_path / "kept")]
    done = call(bare, "pretraining_step.py", *options)
    figures = figures_of(done)

    assert figures["left_out"] == {}
    assert (figures["model"], figures["seq_len"], figures["vocab_size"]) == ("tiny", 16, 64)
    assert figures["environment"] == "same"
    variables = figures["environment_variables"]
    assert variables["peers"] == variables["bertline"] and "GLIBC_TUNABLES" in variables["peers"]
    ours, plain, tuned = (figures[f"tokens_per_s{side}"] for side in ("", "_plain", "_tuned"))
    assert figures["ratio_to_plain"] == pytest.approx(ours / plain, rel=0.01)
    assert figures["ratio_to_tuned"] == pytest.approx(ours / tuned, rel=0.01)
    flops = figures["flops_per_token"]
    assert figures["matmul_fraction"] == pytest.approx(ours * flops / figures["matmul_flops_per_s"], abs=1e-3)

    (kept,) = (tmp_path / "kept").iterdir()
    record = json.loads(kept.read_text())
    assert kept.name.startswith("pretraining_step_") and "_tiny_16_vocab-size-64_batch-size-4" in kept.name
    assert {"commit", "date", "versions", "device", "arguments", *figures} <= record.keys()
