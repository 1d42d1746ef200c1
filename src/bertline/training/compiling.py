"""Whether to compile a model, and how to compile it without changing the names of its weights."""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from bertline.foundation.errors import MachineError
from bertline.foundation.progress import warn

_MAX_SHAPES = 64


def should_compile(choice: Literal["auto", "on", "off"], device: torch.device) -> bool:
    """Return whether to compile. `auto` does not compile on MPS; elsewhere, it warns if it cannot compile.

    Raises:
        MachineError: The choice is `on`, but something that compilation needs is missing.
    """
    if choice == "off" or (choice == "auto" and device.type == "mps"):
        return False
    missing = _missing(device)
    if missing is None:
        return True
    if choice == "on":
        raise MachineError(f"runtime.compile is on, but {missing}. Install it or use runtime.compile=auto or off.")
    warn(f"training runs uncompiled, at about a third of the speed: {missing} (runtime.compile=off is quiet).")
    return False


def compile_in_place(module: nn.Module) -> None:
    """Compile a module's forward in place: the module stays the same object, with the same weight names.

    Shapes are static: each shape is compiled separately (usually one per phase), which runs faster than code for
    dynamic shapes.
    """
    # Beyond its recompile limit (8 by default) the compiler would silently run the slow path.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _MAX_SHAPES)
    module.compile(dynamic=False)


def _missing(device: torch.device) -> str | None:
    if device.type == "cpu":
        compiler = os.environ.get("CXX", "g++")
        if shutil.which(compiler) is None and shutil.which("clang++") is None:
            return f"there is no C++ compiler ({compiler})"
    elif device.type == "cuda" and shutil.which(os.environ.get("CC", "gcc")) is None:
        return "there is no C compiler (gcc), which the kernels of the GPU are launched through"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "there are no Python headers (Python.h; Debian: apt install python3-dev)"
    return None
