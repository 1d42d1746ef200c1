"""The benchmarks that people run by hand still run, in their smallest form and with no more than they say they need."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pretraining_inputs import write_inputs

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SOURCE = Path(__file__).parents[2] / "src"
NOT_ON_A_GPU_IMAGE = ("hydra", "omegaconf", "mlflow", "dvc", "pydantic", "optuna")
BLOCK = f"""
import sys
from importlib.machinery import PathFinder

class Bare(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in {NOT_ON_A_GPU_IMAGE!r}:
            return None
        return PathFinder.find_spec(name, path, target)

sys.meta_path[:] = [Bare if finder is PathFinder else finder for finder in sys.meta_path]
"""


@pytest.fixture
def bare(tmp_path) -> dict[str, str]:
    """The environment of a Python that does not find what a GPU image lacks."""
    (tmp_path / "sitecustomize.py").write_text(BLOCK, encoding="utf-8")
    paths = os.pathsep.join([str(tmp_path), str(SOURCE)])
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}


def last_line(environment: dict[str, str], script: str, *arguments: str) -> dict:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / script, *arguments], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_bare_python_of_these_tests_lacks_what_it_should(bare):
    code = f"from importlib.util import find_spec; print(*filter(find_spec, {NOT_ON_A_GPU_IMAGE!r}), 'yaml')"
    done = subprocess.run([sys.executable, "-c", code], env=bare, capture_output=True, text=True)
    assert done.stdout.split() == ["yaml"], done.stderr


def test_pretraining_step_needs_no_more_than_a_gpu_image_and_compares_three_sides(bare, tmp_path):
    small = "--model tiny --vocab-size 64 --seq-len 16 --batch-size 4 --steps 2 --rounds 2 --threads 1 --workers 1"
    options = [*small.split(), "--device", "cpu", "--set", "runtime.compile=off", "--keep", str(tmp_path / "kept")]
    figures = last_line(bare, "pretraining_step.py", *options)

    assert figures["left_out"] == {}
    assert (figures["model"], figures["seq_len"], figures["vocab_size"]) == ("tiny", 16, 64)
    ours, plain, tuned = (figures[f"tokens_per_s{side}"] for side in ("", "_plain", "_tuned"))
    assert figures["ratio_to_plain"] == pytest.approx(ours / plain, rel=0.01)
    assert figures["ratio_to_tuned"] == pytest.approx(ours / tuned, rel=0.01)
    # 2 layers of 128 with 512 inside; 2 of 16 positions go through the head.
    encoder = 2 * (4 * (128 * 128 + 128) + 2 * 128 * 512 + 512 + 128 + 4 * 128)
    flops = 6 * encoder + 12 * 2 * 128 * 16 + 6 * 2 / 16 * (128 * 128 + 128 * 64)
    assert figures["flops_per_token"] == pytest.approx(flops)
    assert figures["matmul_fraction"] == pytest.approx(ours * flops / figures["matmul_flops_per_s"], abs=1e-3)
    assert figures["peak_memory_bytes"] > 2**27

    (kept,) = (tmp_path / "kept").iterdir()
    record = json.loads(kept.read_text())
    assert kept.name.startswith("pretraining_step_") and kept.name.endswith("_tiny_16.json")
    assert {"commit", "date", "versions", "device", "arguments", *figures} <= record.keys()
    assert {side: len(rounds) for side, rounds in record["rounds"].items()} == {
        "matmul": 2, "bertline": 2, "plain": 2, "tuned": 2,
    }  # fmt: skip


@pytest.mark.slow
def test_learning_trains_both_sides_to_one_measure(bare, tmp_path):
    write_inputs(tmp_path, num_train=400, num_validation=100)
    small = "--model tiny --length 16 --batch-size 16 --steps 150 --seeds 1 --threads 1 --workers 0 --device cpu"
    places = ["--examples", str(tmp_path / "examples"), "--tokenizer", str(tmp_path / "tokenizer")]
    options = ["--set", "runtime.compile=off"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    figures = last_line(environment, "learning.py", *small.split(), *places, *options)

    (seed,) = figures["seeds"]
    names = ("loss_ours", "loss_peer_equal_steps", "loss_peer_equal_time", "loss_peer_stopped")
    assert {name: figures[name] for name in names} == pytest.approx({name: seed[name] for name in names}, abs=1e-3)
    # The made-up pieces follow from one another: both sides learn that, far below the loss of a uniform guess.
    uniform = math.log(61)
    assert figures["loss_ours"] < uniform - 0.2
    assert figures["loss_peer_equal_steps"] < uniform - 0.2
    assert seed["steps_peer_equal_time"] >= 1
