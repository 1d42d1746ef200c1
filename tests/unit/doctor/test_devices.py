"""GPUs: seen, supported, free, computing. The device is faked where there is none."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from bertline.doctor import devices
from bertline.doctor.devices import device_findings, device_of, driver_finding
from bertline.foundation.errors import MachineError
from bertline.training.devices import Ranks


@pytest.fixture
def gpu(monkeypatch):
    """A GPU of compute capability 9.0 under a PyTorch that was built for 8.0 and 9.0; changed by `gpu(name=value)`."""
    facts = {"capability": (9, 0), "archs": ["sm_80", "sm_90"], "free": 79e9, "product": 1024.0}

    def compute(device, precision):
        if facts["product"] != 1024.0:
            raise RuntimeError(f"a product of ones is {facts['product']}, expected 1024")

    cuda = {
        "get_device_name": lambda device: "NVIDIA Imagined",
        "get_device_capability": lambda device: facts["capability"],
        "get_arch_list": lambda: facts["archs"],
        "mem_get_info": lambda device: (int(facts["free"]), int(80e9)),
    }
    monkeypatch.setattr(devices, "resolve_device", lambda runtime, ranks: torch.device("cuda", ranks.local_rank))
    monkeypatch.setattr(devices, "_compute", compute)
    for name, function in cuda.items():
        monkeypatch.setattr(torch.cuda, name, function)
    monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91002)
    return lambda **changes: facts.update(changes)


def found(runtime, local_rank=0):
    findings = device_findings(runtime(), Ranks(local_rank=local_rank), "auto")
    return {one.check: one for one in findings}


def test_a_working_gpu_is_green_with_its_memory_and_cudnn(runtime, gpu):
    lines = found(runtime, local_rank=3)
    assert (lines["device"].status, lines["cuDNN"].status) == ("green", "green")
    assert lines["device"].found == "NVIDIA Imagined (cuda:3, compute capability 9.0), 79.0 GB free"
    assert lines["cuDNN"].found == "9.10.2"


@pytest.mark.parametrize(
    ("archs", "status"),
    [
        (["sm_70", "sm_80"], "red"),
        (["sm_90a"], "green"),
        (["sm_120"], "red"),
        (["sm_80", "compute_80"], "green"),
    ],
)
def test_a_gpu_that_this_torch_was_not_built_for_is_red(runtime, gpu, archs, status):
    gpu(archs=archs)
    line = found(runtime)["device"]
    assert line.status == status
    assert status == "green" or "not supported by PyTorch" in line.found


def test_a_gpu_that_computes_wrongly_is_red(runtime, gpu):
    gpu(product=1000.0)
    line = found(runtime)["device"]
    assert line.status == "red"
    assert "a product of ones is 1000.0, expected 1024" in line.found


def test_a_gpu_that_another_process_uses_is_noted(runtime, gpu):
    gpu(free=30e9)
    line = found(runtime)["device"]
    assert (line.status, "only 30.0 of 80.0 GB are free" in line.found) == ("note", True)


def test_a_missing_cudnn_is_red(runtime, gpu, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: False)
    assert found(runtime)["cuDNN"].status == "red"


def test_a_device_that_cannot_be_had_is_red_with_the_fix_of_the_training(runtime, monkeypatch):
    def refuse(runtime, ranks):
        raise MachineError("runtime.num_devices is 8, but this machine has 2 CUDA devices. Ask for no more.")

    monkeypatch.setattr(devices, "resolve_device", refuse)
    line = found(runtime)["device"]
    assert (line.status, line.fix) == ("red", "Ask for no more.")
    assert device_of(runtime(), Ranks()).type == "cpu"  # the other checks continue


def test_the_drivers_version_is_read_and_a_torch_for_the_cpu_is_noted(monkeypatch, tmp_path):
    path = tmp_path / "version"
    path.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Tue Jan 14\nGCC version: 12.2.0\n")
    monkeypatch.setattr(devices, "_DRIVER", path)
    monkeypatch.setattr(devices.torch, "version", SimpleNamespace(cuda="12.8"))
    assert driver_finding().found == "570.86.15, PyTorch is built for CUDA 12.8"
    monkeypatch.setattr(devices.torch, "version", SimpleNamespace(cuda=None))
    assert driver_finding().status == "note"
    monkeypatch.setattr(devices, "_DRIVER", tmp_path / "missing")
    assert driver_finding().status == "unused"
