import warnings

import pytest
import torch
from torch import nn

from bertline.foundation.errors import MachineError
from bertline.training import devices
from bertline.training.devices import (
    Ranks,
    compile_in_place,
    resolve_device,
    resolve_machine,
    resolve_precision,
    resolve_ranks,
    seed_device,
    should_compile,
)

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


@NO_CUDA
def test_cuda_without_a_gpu_is_an_error(runtime, monkeypatch, tmp_path):
    monkeypatch.setattr(devices, "_NVIDIA_GPUS", tmp_path / "missing")
    with pytest.raises(MachineError, match="no CUDA device"):
        resolve_device(runtime(device="cuda"), Ranks())


class FakeGpus:
    """What this process sees of a node with four GPUs, for one of four ranks."""

    def __init__(self, monkeypatch, visible: str) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(visible.split(",")))
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        monkeypatch.setenv("WORLD_SIZE", "4")


@pytest.mark.parametrize(("visible", "expected"), [("0,1,2,3", "cuda:3"), ("0", "cuda:0"), ("GPU-5f1b", "cuda:0")])
def test_a_task_may_see_all_gpus_of_its_node_or_its_own(runtime, monkeypatch, visible, expected):
    FakeGpus(monkeypatch, visible)
    ranks = Ranks(rank=3, world_size=4, local_rank=3)
    assert resolve_device(runtime(device="auto", num_devices=4), ranks) == torch.device(expected)


@pytest.mark.parametrize(
    ("visible", "environment"),
    [("0,1", {}), ("0", {"TORCHELASTIC_RUN_ID": "none"})],
    ids=["two of four", "one, which all ranks of torchrun would share"],
)
def test_fewer_gpus_than_ranks_are_an_error(runtime, monkeypatch, visible, environment):
    FakeGpus(monkeypatch, visible)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(MachineError, match=r"num_devices is 4, but this process sees \d CUDA.*--gpus-per-task=1"):
        resolve_device(runtime(device="auto", num_devices=4), Ranks(rank=1, world_size=4, local_rank=1))


@pytest.mark.parametrize(("native", "expected"), [(True, "bf16"), (False, "fp32")])
def test_auto_precision_on_the_cpu_follows_the_instruction_set(monkeypatch, native, expected):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: native)
    assert resolve_precision("auto", torch.device("cpu")) == expected


@pytest.mark.parametrize("native", [True, False])
def test_bf16_that_a_cpu_must_emulate_is_taken_with_a_warning(monkeypatch, capsys, native):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: native)
    assert resolve_precision("bf16", torch.device("cpu")) == "bf16"
    warned = capsys.readouterr().err
    assert ("499 times" in warned) is not native
    assert resolve_precision("fp32", torch.device("cpu")) == "fp32"
    assert "warning" not in capsys.readouterr().err


def test_apple_gpus_compute_in_fp32_by_default():
    assert resolve_precision("auto", torch.device("mps")) == "fp32"


def test_ranks_come_from_the_environment(runtime, monkeypatch):
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    assert resolve_ranks(runtime(num_devices=2, num_nodes=2)) == Ranks(rank=3, world_size=4, local_rank=1)


@pytest.mark.parametrize(("world_size", "num_devices"), [(None, 2), ("2", 1), ("3", 2)])
def test_ranks_that_do_not_match_the_configuration_are_an_error(runtime, monkeypatch, world_size, num_devices):
    if world_size:
        monkeypatch.setenv("WORLD_SIZE", world_size)
    with pytest.raises(MachineError, match=r"num_devices.*torchrun"):
        resolve_ranks(runtime(num_devices=num_devices))


def test_the_number_of_threads_is_set(runtime):
    before = torch.get_num_threads()
    try:
        machine = resolve_machine(runtime(num_threads=1), "fp32")
        assert torch.get_num_threads() == 1
        assert (machine.precision, machine.compile, machine.ranks.is_first) == ("fp32", False, True)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("seed", [0, 7, 2**64 - 1])
def test_seeding_the_cpu_draws_what_pytorchs_own_seeding_draws(seed):
    torch.manual_seed(seed)
    expected = torch.rand(3), torch.randint(100, (5,))
    seed_device(torch.device("cpu"), seed)
    assert all(torch.equal(*pair) for pair in zip((torch.rand(3), torch.randint(100, (5,))), expected, strict=True))


CPU = torch.device("cpu")


def test_without_a_compiler_auto_falls_back_and_says_so(monkeypatch, capsys):
    monkeypatch.setattr(devices.shutil, "which", lambda name: None)
    assert should_compile("auto", CPU) is False
    assert "no C++ compiler" in capsys.readouterr().err


def test_without_a_compiler_on_is_an_error(monkeypatch):
    monkeypatch.setattr(devices.shutil, "which", lambda name: None)
    with pytest.raises(MachineError, match="no C\\+\\+ compiler"):
        should_compile("on", CPU)


def test_without_python_headers_auto_falls_back_and_says_so(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(devices.shutil, "which", lambda name: "/usr/bin/g++")
    monkeypatch.setattr(devices.sysconfig, "get_path", lambda name: str(tmp_path))
    assert should_compile("auto", CPU) is False
    assert "Python.h" in capsys.readouterr().err


def test_where_pytorch_lies_in_a_folder_with_a_space_auto_falls_back_and_says_so(monkeypatch, capsys):
    monkeypatch.setattr(devices.shutil, "which", lambda name: "/usr/bin/g++")
    monkeypatch.setattr(devices.torch, "__file__", "/home/me/my project/.venv/torch/__init__.py")
    assert should_compile("auto", CPU) is False
    assert "a folder with a space in its name (/home/me/my project/.venv/torch)" in capsys.readouterr().err


def test_off_is_off_and_apple_gpus_are_not_compiled_for():
    assert should_compile("off", CPU) is False
    assert should_compile("auto", torch.device("mps")) is False


def test_compiling_keeps_object_and_names_of_weights():
    module = nn.Linear(2, 2)
    names = list(module.state_dict())
    compile_in_place(module)
    assert list(module.state_dict()) == names
    assert [name for name, _ in module.named_parameters()] == names


def test_what_the_compiler_asks_its_developers_for_is_not_shown(recwarn):
    compile_in_place(nn.Linear(2, 2))
    warnings.warn(
        "\nOnline softmax is disabled on the fly since Inductor decides to\nsplit the reduction.", stacklevel=1
    )
    warnings.warn("something else", stacklevel=1)
    assert [str(each.message) for each in recwarn] == ["something else"]
