"""Precompiles the headers of PyTorch's compiler for the CPU while a training process still starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from bertline.training.config import RuntimeConfig

# One vectorised kernel needs all of it.
_ONE_KERNEL = "torch.compile(torch.exp)(torch.ones(4096))"
_NVIDIA_DRIVER = Path("/proc/driver/nvidia/gpus")


def start_compiler(runtime: RuntimeConfig, environment: Mapping[str, str]) -> subprocess.Popen[bytes] | None:
    """Start a process that tests the CPU's vector instructions and precompiles the headers of its kernels.

    The first compilation on a machine spends 13 s and more on these, on one core, while the other cores wait. The
    process does it during the imports and the first validation of training; a training that compiles meanwhile waits
    for its locks. It usually ends within half a minute. It runs in a process session of its own, because killed with
    the training it could leave incomplete headers behind. Headers of any version count: after an upgrade of PyTorch,
    training makes them itself.

    Args:
        runtime: How the training uses the machine.
        environment: Environment variables of the training process.

    Returns:
        The process; None if headers exist, training does not compile on the CPU (or there is no compiler), this is not
        the first rank of its node, there is one core, the system is not Linux, or no process can be started.
    """
    if (
        sys.platform != "linux"
        or environment.get("LOCAL_RANK", "0") != "0"
        or not _compiles_on_cpu(runtime, environment)
    ):
        return None
    accelerated = "torch.accelerator.is_available() or " if runtime.device == "auto" else ""
    try:
        if len(os.sched_getaffinity(0)) < 2 or _has_headers():
            return None
        process = subprocess.Popen(
            [sys.executable, "-c", f"import torch; {accelerated}{_ONE_KERNEL}"],
            env={**environment, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:  # training can do without
        return None
    threading.Thread(target=process.wait, name="reap-compiler-start", daemon=True).start()
    return process


def _compiles_on_cpu(runtime: RuntimeConfig, environment: Mapping[str, str]) -> bool:
    if runtime.compile == "off" or shutil.which(environment.get("CXX", "g++")) is None:
        return False
    return runtime.device == "cpu" or (runtime.device == "auto" and not _NVIDIA_DRIVER.is_dir())


def _has_headers() -> bool:
    """Return whether this user has precompiled headers. TORCHINDUCTOR_CACHE_DIR does not move them."""
    folders = Path(tempfile.gettempdir()).glob("torchinductor_*/precompiled_headers")
    return any(any(folder.glob("*.[gp]ch")) for folder in folders if folder.stat().st_uid == os.getuid())
