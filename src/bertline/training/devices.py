"""Device, dtype, ranks, threads and compilation of a run: every `auto` is resolved here, once. Sums over ranks."""

import os
import shutil
import sysconfig
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn

from bertline.foundation.errors import MachineError
from bertline.foundation.progress import warn
from bertline.training.config import Precision, RuntimeConfig
from bertline.training.environment import adopt_srun_ranks
from bertline.training.private_api import compile_at_least, cpu_computes_bf16

_NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranks:
    """Rank of this process among those that train together, from the environment of `torchrun` or `srun`."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0

    @property
    def is_first(self) -> bool:
        """Whether this process writes the files."""
        return self.rank == 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """Machine settings of a run, with every `auto` resolved."""

    device: torch.device
    precision: Precision
    compile: bool
    ranks: Ranks
    scoring_tokens: int | None = None
    """Number of tokens per prediction batch, padding included; None: a fixed number of sequences."""


def resolve_machine(runtime: RuntimeConfig, precision: Literal["auto", "fp32", "bf16"]) -> Machine:
    """Resolve every `auto` of the runtime section, and set the number of CPU threads of this process.

    Raises:
        MachineError: The device, the requested ranks or what the requested compilation needs is missing.
    """
    if runtime.num_threads is not None:
        torch.set_num_threads(runtime.num_threads)
        # Lightning divides the cores among the ranks of a machine unless this variable is set.
        os.environ["OMP_NUM_THREADS"] = str(runtime.num_threads)
    ranks = resolve_ranks(runtime)
    device = resolve_device(runtime, ranks)
    resolved, compiles = resolve_precision(precision, device), should_compile(runtime.compile, device)
    return Machine(device=device, precision=resolved, compile=compiles, ranks=ranks)


def seed_device(device: torch.device, seed: int) -> None:
    """Seed PyTorch's default generators of the CPU and of this device.

    `torch.manual_seed` seeds the backends of all devices, and each one that is not in use stores the call for later
    with a formatted stack trace: 0.3 ms at a stack depth of 40, too slow for every step.
    """
    torch.default_generator.manual_seed(seed)
    if device.type in ("cuda", "mps"):
        getattr(torch, device.type).manual_seed(seed)


def resolve_ranks(runtime: RuntimeConfig) -> Ranks:
    """Read RANK, WORLD_SIZE and LOCAL_RANK of this process and check them against the configuration.

    Under srun they are set here first, from Slurm's own variables: Lightning and PyTorch read them too. MachineError if
    not `num_devices` times `num_nodes` processes were launched.
    """
    adopt_srun_ranks(os.environ)
    expected = runtime.num_devices * runtime.num_nodes
    found = int(os.environ.get("WORLD_SIZE", "1"))
    if found != expected:
        raise MachineError(
            f"runtime.num_devices={runtime.num_devices} and runtime.num_nodes={runtime.num_nodes} need {expected} "
            f"processes, but {found} are running (WORLD_SIZE, or the tasks of srun). Start them with `torchrun "
            f"--nproc-per-node={runtime.num_devices} --nnodes={runtime.num_nodes} ...` or `srun --ntasks-per-node="
            f"{runtime.num_devices} --nodes={runtime.num_nodes} ...`, or change these two keys."
        )
    if expected == 1:
        return Ranks()
    return Ranks(rank=int(os.environ["RANK"]), world_size=found, local_rank=int(os.environ["LOCAL_RANK"]))


def resolve_device(runtime: RuntimeConfig, ranks: Ranks) -> torch.device:
    """Return the device of this rank; MachineError if it is missing, or PyTorch cannot use it."""
    wants_gpu = runtime.device in ("auto", "cuda")
    if wants_gpu and torch.cuda.is_available():
        if runtime.num_devices > (available := torch.cuda.device_count()):
            raise MachineError(
                f"runtime.num_devices is {runtime.num_devices}, but this process sees {available} CUDA devices. "
                "Ask for no more than there are. Under srun, a task needs all GPUs of its node (--gpus-per-node)."
            )
        return torch.device("cuda", ranks.local_rank)
    if wants_gpu and driver_sees_gpu():
        raise MachineError(
            f"The driver of this machine sees an NVIDIA GPU, but PyTorch {torch.__version__} cannot use it"
            f"{'' if torch.version.cuda else ' (it is a build for the CPU)'}. Install a build for the GPU (on an "
            "image that brings its own: make install TORCH=keep), or train on the CPU with runtime.device=cpu."
        )
    if runtime.device in ("auto", "mps") and torch.backends.mps.is_available():
        return torch.device("mps")
    if runtime.device in ("cuda", "mps"):
        raise MachineError(
            f"runtime.device is {runtime.device}, but there is no such device. Use runtime.device=auto or cpu."
        )
    return torch.device("cpu")


def driver_sees_gpu() -> bool:
    """Return whether the NVIDIA driver lists a GPU that is not hidden on purpose (CUDA_VISIBLE_DEVICES)."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    return _NVIDIA_GPUS.is_dir() and any(_NVIDIA_GPUS.iterdir())


def resolve_precision(precision: Literal["auto", "fp32", "bf16"], device: torch.device) -> Precision:
    """Resolve `auto`: bf16 if the hardware computes it natively, else fp32. On Apple GPUs `auto` is fp32.

    CPUs without bf16 instructions emulate it, up to 499 times slower than fp32 (measured), so the instruction set is
    checked. An explicit bf16 is used even if a CPU or CUDA device emulates it, with a warning.
    """
    if precision == "fp32":
        return precision
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        native = device.type == "cpu" and cpu_computes_bf16()
    if precision == "auto":
        return "bf16" if native else "fp32"
    if not native and device.type in ("cpu", "cuda"):
        warn(
            f"precision is bf16, but this {device.type} device has no bf16 instructions and emulates them, far slower "
            "than fp32 (on a CPU up to 499 times). Set precision to auto or fp32."
        )
    return "bf16"


def should_compile(choice: Literal["auto", "on", "off"], device: torch.device) -> bool:
    """Return whether to compile; `auto` does not on MPS, and elsewhere warns if it cannot, where `on` is an error."""
    if choice == "off" or (choice == "auto" and device.type == "mps"):
        return False
    missing = _missing(device)
    if missing is None:
        return True
    if choice == "on":
        raise MachineError(f"runtime.compile is on, but {missing}. Mend that or use runtime.compile=auto or off.")
    warn(f"training runs uncompiled, at about a third of the speed: {missing} (runtime.compile=off is quiet).")
    return False


def compile_in_place(module: nn.Module) -> None:
    """Compile a module's forward in place: the module stays the same object, with the same weight names.

    Each shape is compiled separately (usually one per phase), which runs faster than code for dynamic shapes.
    """
    # On GPUs, the compiler asks the user to report a softmax that it splits, which is no fault.
    warnings.filterwarnings("ignore", message=r"\s*Online softmax is disabled", category=UserWarning)
    compile_at_least(64)
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


@contextmanager
def evaluating(module: nn.Module, machine: Machine) -> Iterator[Callable[..., Any]]:
    """Yield the module's uncompiled forward, without dropout and gradients and in the machine's precision.

    The compiled forward is specialised for the shapes of training; other shapes would each cost a compilation. The mode
    of each submodule is restored at the end.
    """
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    autocast = torch.autocast(machine.device.type, dtype=torch.bfloat16, enabled=machine.precision == "bf16")
    try:
        with torch.no_grad(), autocast:
            yield module.forward
    finally:
        for part, was_training in modes:  # one by one: a frozen part of a model being trained is in eval mode
            part.training = was_training


def sum_over_ranks(values: Sequence[float], device: torch.device) -> list[float]:
    """Sum each value over all ranks. Every rank must call it at the same point; it waits for the device.

    >>> sum_over_ranks([1.5, 2.0], torch.device("cpu"))
    [1.5, 2.0]
    """
    if not several_ranks():
        return list(values)
    # NCCL only communicates tensors on its device; both device types that support several ranks have fp64.
    total = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return total.tolist()


def start_sum(value: float, device: torch.device) -> Callable[[], torch.Tensor | float]:
    """Start to sum one value over all ranks, and return a function that gives the sum.

    Neither waits for the device: what is queued between the two calls runs in the meantime.
    """
    if not several_ranks():
        return lambda: value
    # `full` runs on the device: copying a number to a GPU would wait for all the work before it.
    total = torch.full((), value, dtype=torch.float32, device=device)
    work = dist.all_reduce(total, async_op=True)

    def finish() -> torch.Tensor:
        work.wait()
        return total

    return finish


def several_ranks() -> bool:
    """Return whether this process has joined others."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
