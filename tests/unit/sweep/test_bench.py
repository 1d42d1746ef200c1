"""What a process of a sweep works with."""

from __future__ import annotations

import pytest
import torch

from bertline.sweep.bench import Bench
from bertline.sweep.job import planned


@pytest.fixture
def bench(inputs, input_folder, tmp_path):
    before = torch.get_num_threads()
    yield lambda **runtime: Bench(
        planned(inputs.sweep_job(input_folder, tmp_path / "run", runtime=inputs.runtime(**runtime)))
    )
    torch.set_num_threads(before)


@pytest.mark.parametrize(("asked", "found"), [(None, 1), (2, 2)])
@pytest.mark.parametrize("workers", [1, 2, 8])
def test_threads_of_a_worker_do_not_depend_on_how_many_workers_there_are(bench, workers, asked, found):
    torch.set_num_threads(3)
    assert bench(sweep_workers=workers, num_threads=asked).runtime.num_threads == found
    assert torch.get_num_threads() == found


def test_attention_for_packed_rows_becomes_auto_with_a_warning(bench, capsys):
    assert bench(attention="varlen").runtime.attention == "auto"
    assert "runtime.attention=varlen is for the packed rows of pretraining" in capsys.readouterr().err
    assert bench(attention="sdpa").runtime.attention == "sdpa"
    assert "varlen" not in capsys.readouterr().err


def test_random_weights_have_one_rate_for_all_layers(inputs, input_folder, tmp_path):
    task = inputs.task(fine_tuning={"layer_decay": 0.5})
    made = Bench(planned(inputs.sweep_job(input_folder, tmp_path / "run", task=task)))
    decays = {
        arm: made.run(arm, {"learning_rate": 1e-3}, num_train_rows=32, seed=0).config.layer_decay
        for arm in ("encoder", "random_weights")
    }
    assert decays == {"encoder": 0.5, "random_weights": 1.0}


def test_a_decay_that_trials_vary_is_varied_for_random_weights_too(inputs, input_folder, tmp_path):
    made = Bench(planned(inputs.sweep_job(input_folder, tmp_path / "run")))
    run = made.run("random_weights", {"layer_decay": 0.7}, num_train_rows=32, seed=0)
    assert run.config.layer_decay == 0.7
