"""What bertline relies on in PyTorch, and BERT's sizes as transformers has them."""

from __future__ import annotations

import importlib
import pickle
from pathlib import Path

import pytest
import torch


def test_unpadded_attention_needs_no_other_package() -> None:
    if not hasattr(torch.nn.attention, "__path__"):
        pytest.skip("torch.nn.attention is not a package here")
    assert hasattr(importlib.import_module("torch.nn.attention.varlen"), "varlen_attn")


def test_compiling_without_a_compiler_has_an_error_of_its_own_so_compile_auto_can_fall_back() -> None:
    from torch._inductor import config
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    # Not monkeypatch: what it puts back there is gone for the compiler.
    with config.patch({"cpp.cxx": ("no-such-compiler",)}), pytest.raises(InvalidCxxCompiler):
        get_cpp_compiler()


def test_weights_only_refuses_code_in_a_checkpoint(tmp_path: Path) -> None:
    class Dangerous:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return print, ("code in a checkpoint ran",)

    torch.save({"weights": torch.zeros(1), "step": 3}, tmp_path / "good.pt")
    torch.save({"weights": Dangerous()}, tmp_path / "bad.pt")
    assert torch.load(tmp_path / "good.pt", weights_only=True)["step"] == 3
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "bad.pt", weights_only=True)
