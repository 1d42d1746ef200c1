"""What a process of a sweep works with."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from bertline.sweep import bench as bench_module
from bertline.sweep.bench import Bench, num_sweep_workers, plan_of
from bertline.training import devices


@pytest.fixture
def bench(inputs, input_folder, tmp_path):
    before = torch.get_num_threads()
    yield lambda **runtime: Bench(
        plan_of(inputs.sweep_job(input_folder, tmp_path / "run", runtime=inputs.runtime(**runtime)))
    )
    torch.set_num_threads(before)


@pytest.mark.parametrize(("asked", "found"), [(None, 1), (2, 2)])
@pytest.mark.parametrize("workers", [1, 2, 8])
def test_threads_of_a_worker_do_not_depend_on_how_many_workers_there_are(bench, workers, asked, found):
    torch.set_num_threads(3)
    assert bench(sweep_workers=workers, num_threads=asked).runtime.num_threads == found
    assert torch.get_num_threads() == found


def test_random_weights_have_one_rate_for_all_layers_unless_trials_vary_it(new_job):
    made = Bench(plan_of(new_job(task={"fine_tuning": {"layer_decay": 0.5}})))
    decays = {
        arm: made.run(arm, {"learning_rate": 1e-3}, num_train_rows=32, seed=0).config.layer_decay
        for arm in ("encoder", "random_weights")
    }
    assert decays == {"encoder": 0.5, "random_weights": 1.0}
    varied = made.run("random_weights", {"layer_decay": 0.7}, num_train_rows=32, seed=0)
    assert varied.config.layer_decay == 0.7


@pytest.mark.parametrize(("asked", "gpus", "found"), [(None, 0, 2), (None, 1, 1), (None, 8, 8), (3, 8, 3), (4, 0, 4)])
def test_workers_are_one_for_each_visible_gpu_unless_their_number_is_given(inputs, monkeypatch, asked, gpus, found):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(devices, "driver_sees_gpu", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    runtime = inputs.runtime(device="auto", sweep_workers=asked, num_devices=8, num_nodes=2)
    assert num_sweep_workers(runtime) == found


def test_each_worker_has_a_gpu_of_its_own(new_job, monkeypatch):
    plan = plan_of(new_job())
    machine = replace(Bench(plan).machine, device=torch.device("cuda"))
    chosen = []
    monkeypatch.setattr(bench_module, "resolve_machine", lambda *_: machine)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    indices = [Bench(plan, worker=number).machine.device.index for number in range(4)]
    assert indices == [device.index for device in chosen] == [0, 1, 0, 1]
