"""Check of a machine before the first run on it: each check is green, or red with the sentence that fixes it.

A check is a function that returns what it found, or raises `RedError`.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist

from bertline import planning
from bertline.config import PipelineConfig
from bertline.foundation.errors import BertlineError
from bertline.foundation.files import lock_file
from bertline.planning import Forecast, gigabytes
from bertline.run.slurm import job_script
from bertline.tracking.config import first_line, masked
from bertline.training.config import RuntimeConfig, SlurmLauncherConfig
from bertline.training.devices import Machine, Ranks, resolve_device, resolve_precision, resolve_ranks
from bertline.training.environment import adopt_srun_ranks
from bertline.training.process_group import process_group

_LIMIT_S, _CONNECT_S = 20.0, 5
# Ranks wait four times as long for one another, at least 120 s, and the message names those that
# are missing.
_PEER_TIMEOUT_S, _RANKS_S = 30.0, 150.0
_CGROUPS, _OWN_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_MACHINE = "Look at dmesg, the mounts and the load of this machine, and run the doctor again."
_SLURM = "Start slurmctld and munged, or correct slurm.conf (SLURM_CONF)."
_NETWORK = (
    "Check that the ranks reach each other on every port (firewall), and name the network interface: "
    "GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME; NCCL_DEBUG=INFO shows what NCCL tries."
)


class RedError(Exception):
    """Something would stop or damage a run; its two arguments are what was found, and the sentence that fixes it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check."""

    check: str
    ok: bool
    found: str
    fix: str = ""
    """What to do about it; empty if it is ok."""


def finding_of(name: str, check: Callable[[], str], advice: str = _MACHINE, limit_s: float = _LIMIT_S) -> Finding:
    """Run a check; if it hangs, leave it behind in its thread (end the process with `os._exit`).

    `advice` says what to do if it does not end within its limit, or fails in a way that it does not know.
    """
    future = ThreadPoolExecutor(1).submit(check)
    try:
        return Finding(name, ok=True, found=future.result(limit_s))
    except RedError as error:
        found, fix = error.args
    except BertlineError as error:
        found, _, fix = masked(str(error)).partition(". ")
    except Exception as error:
        found, fix = f"{type(error).__name__}: {first_line(error)}", ""
        if not future.done():
            found = f"no answer within {limit_s:.0f} s"
    return Finding(name, ok=False, found=found, fix=fix or advice)


def examine(config: PipelineConfig) -> int:
    """Run all checks of this rank; the first rank prints them, every other one what is red on it.

    Returns:
        The exit status: 1 if something is red on this rank, else 0.
    """
    adopt_srun_ranks(os.environ)
    ranks = resolve_ranks(config.runtime) if int(os.environ.get("WORLD_SIZE", "1")) > 1 else Ranks()
    num_red = 0
    for name, check, advice in checks(config, ranks):
        finding = finding_of(name, check, advice, _RANKS_S if name == "all-reduce" else _LIMIT_S)
        num_red += not finding.ok
        if ranks.is_first:
            print(as_text(finding), flush=True)
        elif not finding.ok:
            print(f"rank {ranks.rank} ({_node()}): {as_text(finding)}", file=sys.stderr, flush=True)
    if ranks.is_first:
        print(f"\n{num_red} red: a run would fail or be damaged." if num_red else "\nNothing is red.")
    return int(num_red > 0)


def as_text(finding: Finding) -> str:
    """Return a finding as lines for a terminal."""
    fix = f"\n{'':15} -> {finding.fix}" if finding.fix else ""
    return f"{'ok ' if finding.ok else 'RED'} {finding.check:11} {finding.found}{fix}"


def checks(config: PipelineConfig, ranks: Ranks) -> Iterator[tuple[str, Callable[[], str], str]]:
    """Yield name, check and advice of what one rank checks: the disk on each host, Slurm on the first rank of all."""
    runtime = config.runtime
    submits = isinstance(runtime.launcher, SlurmLauncherConfig) and "SLURM_JOB_ID" not in os.environ
    plan = cache(lambda: None if submits or not config.pretrains else planned(config, ranks))
    step = f"srun --nodes={runtime.num_nodes} --ntasks-per-node={runtime.num_devices} make doctor, or torchrun"
    if submits:
        yield "nodes", lambda: f"not checked: this machine only submits jobs. There: {step}", _MACHINE
    else:
        yield "device", partial(devices, runtime, ranks), _MACHINE
        yield "memory", lambda: memory(plan(), runtime), _MACHINE
        if ranks.world_size < runtime.num_devices * runtime.num_nodes:
            yield "all-reduce", lambda: f"not measured: start all configured ranks with {step}", _MACHINE
    if ranks.local_rank == 0:
        yield "disk", partial(disk, Path(runtime.runs_folder), plan, config.pretrain.keep_checkpoints), _MACHINE
    if ranks.is_first:
        yield "Slurm", partial(slurm, runtime), _SLURM
    if ranks.world_size > 1:
        yield "all-reduce", partial(all_reduce, runtime, ranks), _NETWORK


def devices(runtime: RuntimeConfig, ranks: Ranks) -> str:
    """Check the device of this rank, or, if this process is alone, of all ranks that training would start here."""
    local_ranks = range(runtime.num_devices) if ranks.world_size == 1 else (ranks.local_rank,)
    found = [device(resolve_device(runtime, replace(ranks, local_rank=local_rank))) for local_rank in local_ranks]
    return "; ".join(dict.fromkeys(found))


def device(chosen: torch.device) -> str:
    """Check that a device computes a product correctly, and that no other process fills the memory of a GPU."""
    name = f"{torch.cuda.get_device_name(chosen)} ({chosen})" if chosen.type == "cuda" else chosen.type
    try:
        product = _product_of_ones(chosen)
        problem = "" if product == 1024 else f"computes wrongly: a product of ones is {product}, expected 1024"
    except RuntimeError as error:
        problem = f"cannot compute: {first_line(error)}"
    if problem:
        raise RedError(
            f"{name} {problem}",
            "Look at nvidia-smi for errors (Xid, ECC), and use another GPU or node. For 'no kernel image', install a "
            "build of PyTorch for this GPU: a newer one for a newer GPU, an older CUDA for an older GPU.",
        )
    if chosen.type != "cuda":
        return name
    free, total = torch.cuda.mem_get_info(chosen)
    if free < 0.9 * total:
        raise RedError(
            f"{name}, but only {gigabytes(free)} of {gigabytes(total)} are free",
            "Another process uses this GPU: end it (nvidia-smi names it), or ask the scheduler for whole GPUs.",
        )
    return f"{name}, {gigabytes(free)} free"


def _product_of_ones(on: torch.device) -> float:
    ones = torch.ones(1024, 1024, device=on)
    return float((ones @ ones)[512, 512])


def memory_limit() -> int:
    """Return the bytes of memory that this process can use: what the system has available, or its cgroups allow."""
    limits = [psutil.virtual_memory().available]
    own = re.search(r"^0::/(.*)", _OWN_CGROUP.read_text(), flags=re.MULTILINE) if _OWN_CGROUP.exists() else None
    folder = _CGROUPS / (own[1] if own else "")
    files = (each / "memory.max" for each in (folder, *folder.parents))
    limits += [int(limit) for file in files if file.is_file() and (limit := file.read_text().strip()) != "max"]
    return min(limits)


def planned(config: PipelineConfig, ranks: Ranks) -> Forecast:
    """Return the planner's forecast of the configured pretraining, for the memory of this rank."""
    assert config.tokenizer.kind != "none"  # validation requires one where there are phases
    runtime, chosen = config.runtime, resolve_device(config.runtime, ranks)
    precision = resolve_precision(config.pretrain.precision, chosen)
    if chosen.type == "cuda":  # the memory is this GPU's; the rest is what a plan for one with this precision assumes
        memory_bytes = torch.cuda.get_device_properties(chosen).total_memory
        hardware = replace(planning.GPUS["a100" if precision == "bf16" else "v100"], memory_bytes=memory_bytes)
    else:
        memory_bytes = memory_limit() // runtime.num_devices
        hardware = planning.Hardware(planning.THIS_MACHINE, chosen.type, 1e12, 1e12, memory_bytes)
    attention_device = replace(hardware.attention_device(precision), type=chosen.type)
    vocab_size = planning.vocab_size(config.tokenizer, changed={"tokenizer"})
    training, text = planning.Training(config, vocab_size, attention_device), planning.TextSize(None, "not needed")
    return planning.forecast(training, hardware, text, num_devices=runtime.num_devices * runtime.num_nodes)


def memory(plan: Forecast | None, runtime: RuntimeConfig) -> str:
    """Compare the phases with the memory of a rank; on a GPU, training looks for a fitting micro-batch itself."""
    if plan is None:
        return "not used: nothing is pretrained"
    phases = (
        f"phase {number}: {gigabytes(phase.memory.total)} ± 25 % for {phase.micro_batch_size} sequences of "
        f"{phase.max_length}"
        for number, phase in enumerate(plan.phases, start=1)
    )
    found = "; ".join([f"{gigabytes(plan.hardware.usable_bytes)} for a rank", *phases])
    if plan.fits:
        return found
    choice = f"runtime.micro_batch_size={plan.fitting_micro_batch_size}"
    if not plan.fitting_micro_batch_size:
        raise RedError(f"{found}; not even one fits", "Take a smaller model, larger devices, or fewer CPU ranks.")
    if plan.hardware.is_gpu and runtime.micro_batch_size is None and runtime.micro_batch_tokens is None:
        return f"{found}; training takes smaller micro-batches by itself ({choice})"
    raise RedError(found, f"Set {choice}, which changes no result.")


def disk(runs: Path, planned: Callable[[], Forecast | None], num_kept: int) -> str:
    """Check the folder of runs: free space for the checkpoints that a run keeps, and locks."""
    place = next(each for each in (runs.absolute(), *runs.absolute().parents) if each.is_dir())
    needed = 1 << 30
    with suppress(BertlineError):  # the check of the memory says what is wrong
        if (plan := planned()) is not None:
            # Besides those that are kept: the next while the oldest is still there, and room for `latest/`.
            needed += (num_kept + 2) * (4 * plan.parameters + plan.fullest.memory.optimizer)
    free = shutil.disk_usage(place).free
    found = f"{gigabytes(free)} free in {place}, at most {gigabytes(needed)} needed"
    if free < needed:
        raise RedError(found, "Free space there, or choose another folder with runtime.runs_folder.")
    try_files(place)
    return f"{found}; it locks files"


def try_files(place: Path) -> None:
    """Lock a file twice, as two processes would."""
    fix = (
        "Mount it writable and with locks (Lustre: -o flock; NFS: version 4, or with lockd), which keep two commands "
        "from the same run; or choose another runtime.runs_folder."
    )
    try:
        with tempfile.NamedTemporaryFile(prefix=".doctor-", dir=place) as one, Path(one.name).open("rb") as other:
            is_locked = lock_file(one) and lock_file(other) is False
    except OSError as error:
        raise RedError(f"{place} cannot be written: {error.strerror}", fix) from error
    if not is_locked:
        raise RedError(f"{place} has no locks: a file that is locked can be locked again", fix)


def all_reduce(runtime: RuntimeConfig, ranks: Ranks) -> str:
    """Form the process group that training would form, sum over its ranks, and measure the bandwidth once."""
    chosen = resolve_device(runtime, ranks)
    on = chosen if chosen.type == "cuda" else torch.device("cpu")
    world_size, num_bytes = ranks.world_size, (64 if on.type == "cuda" else 16) << 20
    with process_group(Machine(device=on, precision="fp32", compile=False, ranks=ranks), _PEER_TIMEOUT_S):
        # Each rank has a row of its own, which is zero on the others.
        rows = torch.zeros(world_size, 1024, device=on)
        rows[ranks.rank] = ranks.rank + 1
        dist.all_reduce(rows)
        is_wrong = (rows != torch.arange(1, world_size + 1, device=on)[:, None]).any(dim=1)
        large = torch.ones(num_bytes // 4, device=on)
        dist.all_reduce(large)  # opens connections
        float(large[0])  # waits for a GPU
        started = time.monotonic()
        dist.all_reduce(large)
        float(large[0])
        took_s = max(time.monotonic() - started, 1e-9)
        nodes: list[Any] = [None] * world_size
        dist.all_gather_object(nodes, _node())
        backend = dist.get_backend()
    if wrong := [f"rank {rank} ({nodes[rank]})" for rank in range(world_size) if is_wrong[rank]]:
        raise RedError(
            f"the sum over the ranks is wrong by the part of {', '.join(wrong)} ({backend})",
            "Do not train with this rank: take its node out and have its memory, GPU and network card tested (on "
            "GPUs, see whether NCCL_P2P_DISABLE=1 makes it right).",
        )
    bytes_per_s = 2 * (world_size - 1) / world_size * num_bytes / took_s  # bus bandwidth, as nccl-tests
    return f"correct over {world_size} ranks with {backend}, {bytes_per_s / 1e9:.2f} GB/s"


def slurm(runtime: RuntimeConfig) -> str:
    """Check that Slurm's controller answers, and would take the job of the configuration."""
    calls = {"scontrol ping": "", "squeue --noheader --me": ""}
    if isinstance(runtime.launcher, SlurmLauncherConfig):
        folder = Path(runtime.runs_folder) / "doctor"
        calls["sbatch --test-only"] = job_script(folder, runtime, name="doctor", ranks=True)
    elif "SLURM_JOB_ID" not in os.environ:
        return "not used: runtime.launcher is another one"
    if shutil.which("scontrol") is None:
        raise RedError(
            "Slurm's commands, such as scontrol, cannot be found",
            "Start from a login node, or module load slurm; in a container, bind its commands and munge's socket.",
        )
    for command, script in calls.items():
        done = subprocess.run(
            command.split(), input=script, capture_output=True, text=True, timeout=_CONNECT_S, check=False
        )
        said = (done.stdout + done.stderr).strip() or f"exit status {done.returncode}"
        if done.returncode != 0 or ("is DOWN" in said and "is UP" not in said):
            fix = "Correct runtime.launcher, runtime.num_nodes or runtime.num_devices; see sinfo for partitions."
            raise RedError(f"{command}: {said.splitlines()[-1]}", fix if script else _SLURM)
    return "answers, and would take the job" if len(calls) == 3 else "answers"


def _node() -> str:
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()
