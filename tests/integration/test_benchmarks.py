"""The benchmarks that people run by hand still run, in their smallest form and with no more than they say they need."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import tiny
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


@pytest.mark.parametrize("prepared", [False, True], ids=["by itself", "prepared as the Trainer does"])
def test_the_muon_of_the_trainer_takes_the_steps_that_bertline_takes(prepared):
    """Given equal weights and gradients and a schedule, to the rounding of bf16 products."""
    import accelerate
    import torch
    from bare_configuration import section
    from hugging_face_peer import MuonAndAdamW

    from bertline.modeling.bert import BertForPreTraining
    from bertline.modeling.huggingface import to_disk
    from bertline.modeling.initialization import initialize
    from bertline.training.groupwise import set_learning_rate
    from bertline.training.optimizers import OptimizerConfig

    config = section(OptimizerConfig, "optimizer/muon_short")
    model = BertForPreTraining(tiny.model_config(), vocab_size=20, pad_token_id=0)
    initialize(model, tiny.model_config(), seed=0)
    named = to_disk(dict(model.named_parameters()))  # the names of transformers
    weights = {name: torch.nn.Parameter(value.detach().clone()) for name, value in named.items()}
    peer = SimpleNamespace(named_parameters=weights.items)
    ours, theirs = config.build(model, precision="bf16"), MuonAndAdamW(peer, config)
    schedule = torch.optim.lr_scheduler.LambdaLR(theirs, lambda step: 1 / (1 + step))
    if prepared:
        theirs = accelerate.Accelerator(cpu=True).prepare(theirs)
    before = {name: value.detach().clone() for name, value in weights.items()}
    for step in range(3):
        generator = torch.Generator().manual_seed(step)
        for weight in model.parameters():
            weight.grad = torch.randn(weight.shape, generator=generator)
        gradients = to_disk({name: weight.grad for name, weight in model.named_parameters()})
        for name, weight in weights.items():
            weight.grad = gradients[name].clone()
        set_learning_rate(ours, config.lr / (1 + step))
        ours.step()
        theirs.step()
        schedule.step()
    for name, expected in to_disk(dict(model.named_parameters())).items():
        moved = (expected - before[name]).norm()
        assert moved > 0
        assert (weights[name] - expected).norm() < 0.02 * moved, name


def test_where_bertline_itself_fails_the_benchmark_fails_with_the_reason(bare):
    small = "--model tiny --vocab-size 64 --seq-len 16 --batch-size 4 --threads 1 --workers 0 --device cpu"
    done = call(bare, "pretraining_step.py", *small.split(), "--arms", "bertline", "--set", "optimizer.kind=sgd")
    assert done.returncode == 1
    assert "bertline failed" in done.stderr and "sgd" in done.stderr
