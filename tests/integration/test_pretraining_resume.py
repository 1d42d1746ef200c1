"""Promise 5: training killed at any moment and restarted ends in the same weights as an uninterrupted run."""

import importlib.util
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from bertline.foundation.metrics_log import read_metrics
from bertline.pretraining.film_strip import read_film_strip
from bertline.pretraining.run import run_pretraining
from bertline.training.checkpoints import CheckpointFolder

HELPER = Path(__file__).parents[1] / "pretraining_inputs.py"
STEPS = 120
CHANGES = {
    "pretrain__phases": [
        {"steps": 70, "max_length": 16, "global_batch_size": 8},
        {"steps": 50, "max_length": 24, "global_batch_size": 6},
    ],
    "runtime__num_workers": 1,
    "runtime__micro_batch_size": 3,
}


@pytest.fixture(scope="module")
def helper():
    spec = importlib.util.spec_from_file_location("pretraining_inputs", HELPER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def process(inputs, run_folder, changes, **environment) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, HELPER, inputs, run_folder, json.dumps(changes)],
        env={"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def newest_logged_step(job) -> int:
    return max((row.step for row in read_metrics(job.metrics_path)), default=-1)


def curve(job) -> list:
    return [
        (row.step, {key: value for key, value in row.metrics.items() if not key.startswith("perf/")})
        for row in read_metrics(job.metrics_path)
    ]


def newest_state(job) -> dict:
    return CheckpointFolder(job.checkpoints_folder, keep=1).load_newest().state


def assert_bitwise_same(left, right, where="") -> None:
    if isinstance(left, torch.Tensor):
        assert torch.equal(left, right), where
    elif isinstance(left, dict):
        assert left.keys() == right.keys(), where
        for key in left:
            assert_bitwise_same(left[key], right[key], f"{where}/{key}")
    elif isinstance(left, list):
        assert len(left) == len(right), where
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            assert_bitwise_same(one, other, f"{where}/{index}")
    else:
        assert left == right, where


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_as_if_left_alone(helper, tmp_path):
    helper.write_inputs(tmp_path, lengths=(16, 24))
    alone = helper.pretrain_job(tmp_path, tmp_path / "alone", **CHANGES)
    run_pretraining(alone)

    killed = helper.pretrain_job(tmp_path, tmp_path / "killed", **CHANGES)
    chance = random.Random()
    seed = chance.randrange(2**32)
    chance.seed(seed)
    print(f"moments are drawn with seed {seed}")
    for target in sorted(chance.sample(range(5, STEPS - 20), 3)):
        worker = process(tmp_path, killed.run_folder, CHANGES)
        while newest_logged_step(killed) < target and worker.poll() is None:
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.03))
        assert worker.poll() is None, worker.communicate()[0]
        worker.send_signal(signal.SIGKILL)
        worker.communicate()
    last = process(tmp_path, killed.run_folder, CHANGES)
    output, _ = last.communicate(timeout=300)
    assert last.returncode == 0, output

    expected, found = newest_state(alone), newest_state(killed)
    for name in ("model", "optimizer", "step", "place"):
        assert_bitwise_same(expected[name], found[name], name)
    assert curve(killed) == curve(alone)
    assert read_film_strip(killed.film_strip_path) == read_film_strip(alone.film_strip_path)


@pytest.mark.slow
def test_two_processes_train_like_one_to_rounding(helper, tmp_path):
    """Their shares have different numbers of targets and of micro-batches (promise 3)."""
    helper.write_inputs(tmp_path)
    changes = {
        "model__hidden_dropout_prob": 0.0,
        "model__attention_probs_dropout_prob": 0.0,
        "pretrain__phases": [{"steps": 25, "max_length": 16, "global_batch_size": 7}],
        "runtime__micro_batch_size": 3,
    }
    alone = helper.pretrain_job(tmp_path, tmp_path / "alone", **changes)
    run_pretraining(alone)

    together = helper.pretrain_job(tmp_path, tmp_path / "together", **changes)
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    changes = {**changes, "runtime__num_devices": 2}
    ranks = [
        process(tmp_path, together.run_folder, changes, RANK=str(rank), LOCAL_RANK=str(rank), **shared)
        for rank in range(2)
    ]
    outputs = [rank.communicate(timeout=300)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs

    expected, found = newest_state(alone)["model"], newest_state(together)["model"]
    for name in expected:
        torch.testing.assert_close(expected[name], found[name], rtol=1e-3, atol=1e-5, msg=name)
    for (step, left), (other_step, right) in zip(curve(alone), curve(together), strict=True):
        assert step == other_step
        assert left == pytest.approx(right, rel=1e-3, abs=1e-6)


def free_port() -> int:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
