import pytest
import torch
from torch import nn

from bertline.foundation.errors import MachineError
from bertline.training import devices
from bertline.training.devices import compile_in_place, should_compile

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


def test_off_is_off_and_apple_gpus_are_not_compiled_for():
    assert should_compile("off", CPU) is False
    assert should_compile("auto", torch.device("mps")) is False


def test_compiling_keeps_object_and_names_of_weights():
    module = nn.Linear(2, 2)
    names = list(module.state_dict())
    compile_in_place(module)
    assert list(module.state_dict()) == names
    assert [name for name, _ in module.named_parameters()] == names
