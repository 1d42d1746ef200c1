import pytest
import torch
from torch import nn

from bertline.foundation.errors import MachineError
from bertline.training import devices
from bertline.training.devices import Machine, Ranks, evaluating, resolve_device

NO_CUDA = pytest.mark.skipif(torch.cuda.is_available(), reason="tells what happens where torch sees no GPU")


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "CUDA_VISIBLE_DEVICES", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)


@NO_CUDA
@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_gpu_that_only_the_driver_sees_is_an_error_with_the_fix(runtime, monkeypatch, tmp_path, device):
    (tmp_path / "0000:01:00.0").mkdir()
    monkeypatch.setattr(devices, "_NVIDIA_GPUS", tmp_path)
    with pytest.raises(MachineError, match=r"driver .* sees an NVIDIA GPU.*TORCH=keep.*runtime\.device=cpu"):
        resolve_device(runtime(device=device), Ranks())


@NO_CUDA
def test_a_gpu_hidden_on_purpose_or_not_wanted_is_no_error(runtime, monkeypatch, tmp_path):
    (tmp_path / "0000:01:00.0").mkdir()
    monkeypatch.setattr(devices, "_NVIDIA_GPUS", tmp_path)
    assert resolve_device(runtime(device="cpu"), Ranks()).type == "cpu"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert resolve_device(runtime(device="auto"), Ranks()).type in ("cpu", "mps")


def test_a_rank_has_the_gpu_of_its_number_and_needs_to_see_all_of_its_node(runtime, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    ranks = Ranks(rank=3, world_size=4, local_rank=3)
    assert resolve_device(runtime(device="auto", num_devices=4), ranks) == torch.device("cuda:3")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)  # as with `srun --gpus-per-task=1`
    with pytest.raises(MachineError, match=r"num_devices is 4, but this process sees 1 CUDA.*--gpus-per-node"):
        resolve_device(runtime(device="auto", num_devices=4), ranks)


def machine(precision: str) -> Machine:
    return Machine(device=torch.device("cpu"), precision=precision, compile=False, ranks=Ranks())


def test_inside_there_is_no_dropout_and_no_gradient_and_outside_training_continues():
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Dropout(0.5).eval())
    ones = torch.ones(1, 4)
    with evaluating(module, machine("fp32")) as run:
        first, second = run(ones), run(ones)
    assert torch.equal(first, second)
    assert not first.requires_grad
    assert [part.training for part in (module, *module)] == [True, True, True, False]
