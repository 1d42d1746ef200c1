"""Checks of Python, PyTorch and the compiler."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from bertline.doctor.finding import Finding, green, note, red, unused
from bertline.training.config import RuntimeConfig

PYTHONS = ((3, 11), (3, 13))
"""Oldest and newest supported Python."""
TORCHES = ((2, 11), (2, 13))
"""Oldest supported PyTorch, and the newest that was tested."""
_COMPILE_S = 20.0
# What the kernels of torch.compile need: the standard library, vector loops over threads, a module that Python loads.
_PROGRAM = "#include <Python.h>\n#include <omp.h>\n#include <cmath>\nint threads() { return omp_get_max_threads(); }\n"
_C_PROGRAM = "#include <Python.h>\nint answer(void) { return 42; }\n"


def python_finding(version: tuple[int, int] = sys.version_info[:2]) -> Finding:
    """Compare the version of Python with the supported ones."""
    found = f"{platform.python_version()} in {sys.prefix}" if version == sys.version_info[:2] else _dotted(version)
    oldest, newest = PYTHONS
    if oldest <= version <= newest:
        return green("Python", found)
    return red(
        "Python",
        f"{found}; supported are {_dotted(oldest)} to {_dotted(newest)}",
        f"Make the environment with a supported one: make clean, then make install PYTHON=python{_dotted(newest)}.",
    )


def torch_finding(version: str | None = None) -> Finding:
    """Compare the version of PyTorch with the supported ones.

    Args:
        version: The version, such as `2.13.0+cpu`; None: the installed one.
    """
    version = version or str(torch.__version__)
    numbers = re.match(r"(\d+)\.(\d+)", version)
    pair = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    oldest, newest = TORCHES
    if pair < oldest:
        return red(
            "PyTorch",
            f"{version}, older than {_dotted(oldest)}",
            "Install the locked version with make install, or, on a GPU image, one of at least "
            f"{_dotted(oldest)} into the image and then make install TORCH=keep.",
        )
    if pair > newest:
        return note(
            "PyTorch",
            f"{version}, newer than {_dotted(newest)}, the newest that was tested",
            "If something fails, install the locked version: make install.",
        )
    return green("PyTorch", version)


def compiler_findings(runtime: RuntimeConfig, device: torch.device) -> Iterator[Finding]:
    """Compile a small program as `torch.compile` would: with the C++ compiler on a CPU, the C compiler on a GPU."""
    if runtime.compile == "off" or (runtime.compile == "auto" and device.type == "mps"):
        yield unused("compiler", "not used: nothing is compiled (runtime.compile)")
        return
    language, variable, default, package = (
        ("c", "CC", "gcc", "gcc") if device.type == "cuda" else ("c++", "CXX", "g++", "g++")
    )
    # Without it training runs, at about a third of the speed, unless compilation was asked for.
    bad = red if runtime.compile == "on" else note
    command = shutil.which(os.environ.get(variable, default)) or (
        shutil.which("clang++") if device.type == "cpu" else None
    )
    if command is None:
        yield bad(
            "compiler",
            f"there is no {language.upper()} compiler ({os.environ.get(variable, default)})",
            f"Install one (Debian: apt install {package}; on a cluster often: module load gcc) or name it in "
            f"{variable}. Without it training runs uncompiled, at about a third of the speed.",
        )
        return
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").exists():
        yield bad(
            "compiler",
            f"{command}, but there are no Python headers ({headers}/Python.h)",
            "Install them (Debian: apt install python3-dev) or use a Python that brings them. Without them training "
            "runs uncompiled, at about a third of the speed.",
        )
        return
    problem = _compile(command, language, headers)
    if problem is not None:
        yield bad(
            "compiler",
            f"{command} cannot compile a small program: {problem}",
            "Install a complete compiler (Debian: apt install build-essential; clang also needs libomp-dev), or use "
            "runtime.compile=off.",
        )
        return
    yield green("compiler", f"{command} compiles, with Python.h")


def _compile(command: str, language: str, headers: Path) -> str | None:
    """Compile and link a small program; return the compiler's first complaint, None if there is none."""
    program = _PROGRAM if language == "c++" else _C_PROGRAM
    flags = ["-fopenmp"] if language == "c++" else []
    with tempfile.TemporaryDirectory(prefix="bertline-doctor-") as folder:
        done = subprocess.run(
            [command, "-x", language, "-", "-shared", "-fPIC", *flags, f"-I{headers}", "-o", f"{folder}/program.so"],
            input=program,
            capture_output=True,
            text=True,
            timeout=_COMPILE_S,
            check=False,
        )
    if done.returncode == 0:
        return None
    lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    return next((line for line in lines if "error" in line), lines[0])


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
