"""Start of a training process: settings that are read only then, and headers that the compiler needs, made early."""

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

_GIB = 1 << 30
# On the CPU, threads wait for one another about sixty times per step. Next to other busy processes, spinning while they
# wait makes a step at least twice as long; sleeping at once costs a fifth on an idle machine. So they spin for a few
# microseconds and then sleep.
_SPIN = {"GOMP_SPINCOUNT": "1000"}
# The C library returns large blocks of memory to the system when they are freed, and a step frees all that it
# allocated: the next step then takes a page fault for every 4 KiB, a fifth of its time. So memory is kept, in huge
# pages where the system provides them on request.
_TUNABLES = {
    "glibc.malloc.hugetlb": 1,
    "glibc.malloc.mmap_threshold": _GIB,
    "glibc.malloc.trim_threshold": 64 * _GIB,
}
_MEMORY = {"GLIBC_TUNABLES": ":".join(f"{name}={value}" for name, value in _TUNABLES.items())}


def environment_for_training(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with missing settings for speed added (measured: notebooks/LOG.md); set ones are kept.

    >>> sorted(environment_for_training({"PATH": "/bin"}))
    ['GLIBC_TUNABLES', 'GOMP_SPINCOUNT', 'PATH']
    >>> environment_for_training({"GOMP_SPINCOUNT": "5", "GLIBC_TUNABLES": ""})["GOMP_SPINCOUNT"]
    '5'
    """
    chosen = dict(environment)
    if "OMP_WAIT_POLICY" not in environment:
        chosen = {**_SPIN, **chosen}
    if not any(name.startswith("MALLOC_") for name in environment):
        chosen = {**_MEMORY, **chosen}
    return chosen


def use_training_environment() -> None:
    """Start this program again with the settings above, if some are missing: a process reads them only as it starts.

    It remains the same process (the same id), so whoever started it can still send it signals. Call it first.
    """
    environment = environment_for_training(os.environ)
    if environment != dict(os.environ):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


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
