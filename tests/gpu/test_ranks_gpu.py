"""Two ranks under NCCL."""

import pytest
import torch

import pretraining_inputs
import pretraining_processes as processes
from bertline.training import devices
from rank_curves import assert_same_curves

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")

COMMON = {
    "runtime__device": "cuda",
    **pretraining_inputs.NO_DROPOUT,
    # Shares of 7 and 8 sequences.
    "pretrain__phases": [
        {"steps": 20, "max_length": 16, "global_batch_size": 15},
        {"steps": 10, "max_length": 24, "global_batch_size": 6},
    ],
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    pretraining_inputs.write_inputs(folder, lengths=(16, 24))
    return folder


def weights(inputs, run_folder) -> dict[str, torch.Tensor]:
    return pretraining_inputs.newest_state(pretraining_inputs.pretrain_job(inputs, run_folder))["model"]


def assert_close(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, rtol=5e-3, atol=2e-4, msg=name)


@pytest.mark.parametrize("compile_setting", ["off", "on"])
@pytest.mark.parametrize("packing", ["off", "on"])
def test_two_ranks_that_accumulate_train_like_one(inputs, tmp_path, packing, compile_setting):
    if compile_setting == "on" and devices._missing(torch.device("cuda", 0)) is not None:
        pytest.skip(devices._missing(torch.device("cuda", 0)))
    alone, together = tmp_path / "alone", tmp_path / "together"
    changes = {**COMMON, "runtime__packing": packing}
    processes.finish(processes.start(inputs, alone, changes))
    several = {**changes, "runtime__micro_batch_size": 3, "runtime__compile": compile_setting}
    processes.finish(*processes.start_ranks(inputs, [together] * 2, several))
    assert_close(weights(inputs, together), weights(inputs, alone))


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_several_gpus_give_the_curve_of_one(tmp_path, num_ranks):
    if torch.cuda.device_count() < num_ranks:
        pytest.skip(f"needs {num_ranks} GPUs")
    # Sums of fp32 have another order on each number of GPUs, and differences grow over 200 steps.
    assert_same_curves(tmp_path, [num_ranks], {"runtime__device": "cuda"}, rel=5e-3)


def test_ranks_stay_alike_with_an_optimizer_of_our_own(inputs, tmp_path, optimizers):
    changes = {**COMMON, "optimizer": optimizers["muon"]}
    alone, together = tmp_path / "alone", tmp_path / "together"
    processes.finish(processes.start(inputs, alone, changes))
    processes.finish(*processes.start_ranks(inputs, [together] * 2, changes))
    assert_close(weights(inputs, together), weights(inputs, alone))
