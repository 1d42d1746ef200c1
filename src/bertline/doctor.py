"""Check of a machine before the first run on it: each check is green, or red with the sentence that fixes it.

A check is a function that returns what it found, or raises `RedError`. It runs in a thread with a time limit: what
hangs (a dead server, a network file system) is red, and the next check runs.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import platform
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from bertline.config import PipelineConfig
from bertline.foundation.errors import BertlineError
from bertline.foundation.parallel import usable_cores
from bertline.planning import (
    GPUS,
    THIS_MACHINE,
    Forecast,
    Hardware,
    TextSize,
    Training,
    forecast,
    phases_reached,
    vocab_size,
)
from bertline.run.slurm import job_script
from bertline.run.stages import ARTIFACTS
from bertline.tracking.config import STUDIES_VARIABLE, TrackingConfig, database_file, masked
from bertline.training.config import RuntimeConfig
from bertline.training.devices import Machine, Ranks, resolve_device, resolve_precision
from bertline.training.launchers import SlurmLauncherConfig
from bertline.training.nodes import adopt_srun_ranks
from bertline.training.process_group import process_group

PYTHONS = ((3, 11), (3, 13))
"""Oldest and newest supported Python."""
TORCHES = ((2, 11), (2, 13))
"""Oldest supported PyTorch, and the newest that was tested."""
_LIMIT_S, _CONNECT_S = 20.0, 5
# Ranks wait four times as long for one another, at least 120 s, and the message names those that are missing.
_PEER_TIMEOUT_S, _RANKS_S = 30.0, 150.0
_MEMINFO, _CGROUPS, _OWN_CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_MACHINE = "Look at dmesg, the mounts and the load of this machine, and run the doctor again."
_SERVER = "Start it, or correct its address; a firewall may swallow requests."
_NETWORK = (
    "Check that the ranks reach each other on every port (firewall), and name the network interface: "
    "GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME; NCCL_DEBUG=INFO shows what NCCL tries."
)


class RedError(Exception):
    """Something would stop or damage a run; its two arguments are what was found, and the sentence that fixes it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Result of one check."""

    check: str
    ok: bool
    found: str
    fix: str = ""
    """What to do about it; empty if it is ok."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """A check to run."""

    name: str
    run: Callable[[], str]
    limit_s: float = _LIMIT_S
    advice: str = _MACHINE
    """What to do if it does not end within its limit, or fails in a way that it does not know."""

    def finding(self) -> Finding:
        """Run the check; if it hangs, leave it behind in its thread (end the process with `os._exit`)."""
        findings: list[Finding] = []

        def run() -> None:
            try:
                findings.append(Finding(check=self.name, ok=True, found=self.run()))
                return
            except RedError as error:
                found, fix = error.args
            except BertlineError as error:
                found, _, fix = masked(str(error)).partition(". ")
            except Exception as error:
                found, fix = f"{type(error).__name__}: {_first_line(error)}", ""
            findings.append(Finding(check=self.name, ok=False, found=found, fix=fix or self.advice))

        thread = threading.Thread(target=run, name=f"doctor {self.name}", daemon=True)
        thread.start()
        thread.join(self.limit_s)
        late = Finding(check=self.name, ok=False, found=f"no answer within {self.limit_s:.0f} s", fix=self.advice)
        return findings[0] if findings else late


def examine(config: PipelineConfig, *, as_json: bool) -> int:
    """Run all checks of this rank; the first rank prints them, and what is red on the others.

    Returns:
        The exit status: 1 if something is red, else 0. Ranks whose findings the first one prints return 0.
    """
    ranks, findings, of_ranks = launched_ranks(os.environ), list[Finding](), list[list[Finding]]()

    def tell(found: Finding) -> None:
        findings.append(found)
        if ranks.is_first and not as_json:
            print(as_text(found), flush=True)

    for check in checks(config, ranks):
        tell(check.finding())
    if ranks.world_size > 1:
        run = partial(all_reduce, config.runtime, ranks, findings, of_ranks)
        tell(Check(name="all-reduce", run=run, limit_s=_RANKS_S, advice=_NETWORK).finding())
    if not ranks.is_first:
        unreported = [one for one in findings if not one.ok and not of_ranks]
        for one in unreported:
            print(f"{_named(ranks)}: {as_text(one)}", file=sys.stderr, flush=True)
        return int(bool(unreported))
    for one in itertools.chain(*of_ranks[1:]):
        tell(one)
    num_red = sum(not one.ok for one in findings)
    if as_json:
        print(json.dumps({"ok": not num_red, "findings": [asdict(one) for one in findings]}, indent=1))
    else:
        print(f"\n{num_red} red: a run would fail or be damaged." if num_red else "\nNothing is red.")
    return int(num_red > 0)


def as_text(finding: Finding) -> str:
    """Return a finding as lines for a terminal.

    >>> print(as_text(Finding(check="disk", ok=False, found="1.0 GB free", fix="Free space there.")))
    RED disk        1.0 GB free
                    -> Free space there.
    """
    fix = f"\n{'':15} -> {finding.fix}" if finding.fix else ""
    return f"{'ok ' if finding.ok else 'RED'} {finding.check:11} {finding.found}{fix}"


def checks(config: PipelineConfig, ranks: Ranks) -> Iterator[Check]:
    """Yield the checks of one rank by itself: folders on the first rank of each host, servers on the first of all."""
    runtime, launcher = config.runtime, config.runtime.launcher
    runs = Path(runtime.runs_folder)
    submits = isinstance(launcher, SlurmLauncherConfig) and "SLURM_JOB_ID" not in os.environ
    by_hand = runtime.micro_batch_size is not None or runtime.micro_batch_tokens is not None
    is_gpu = lambda: resolve_device(runtime, ranks).type == "cuda"  # noqa: E731
    plan = cache(lambda: None if submits or not config.pretrains else planned(config, ranks))
    yield Check(name="Python", run=python)
    yield Check(name="PyTorch", run=pytorch)
    step = f"srun --nodes={runtime.num_nodes} --ntasks-per-node={runtime.num_devices} make doctor, or torchrun"
    if submits:
        yield Check(name="nodes", run=lambda: f"not checked: this machine only submits jobs. There: {step}")
    else:
        yield Check(name="driver", run=driver)
        yield Check(name="device", run=partial(devices, runtime, ranks))
        yield Check(name="compiler", run=partial(compiler, runtime, ranks))
        yield Check(name="cores", run=partial(cores, runtime, usable_cores()))
        yield Check(name="memory", run=lambda: memory(plan(), searches=not by_hand and is_gpu()))
        if ranks.world_size < runtime.num_devices * runtime.num_nodes:
            yield Check(name="all-reduce", run=lambda: f"not measured: start all configured ranks with {step}")
    if ranks.local_rank == 0:
        yield Check(name="disk", run=lambda: disk(runs, plan, config.pretrain.keep_checkpoints))
        yield Check(name="lock", run=partial(lock, runs))
        yield Check(name="rename", run=partial(rename, runs))
    if ranks.is_first:
        tasks = launcher.sweep_tasks if isinstance(launcher, SlurmLauncherConfig) else 1
        yield Check(name="MLflow", run=partial(mlflow, config.tracking), advice=_SERVER)
        yield Check(name="studies", run=partial(studies, config.tracking, num_machines=tasks), advice=_SERVER)
        yield Check(name="Slurm", run=partial(slurm, runtime), advice=_SERVER)


def python(found: tuple[int, ...] = sys.version_info[:2]) -> str:
    """Compare the version of Python with the supported ones."""
    if PYTHONS[0] <= found <= PYTHONS[1]:
        return f"{platform.python_version()} in {sys.prefix}"
    oldest, newest = (".".join(map(str, each)) for each in PYTHONS)
    fix = f"Make the environment with a supported one: make clean, then make install PYTHON=python{newest}."
    raise RedError(f"{'.'.join(map(str, found))}; supported are {oldest} to {newest}", fix)


def pytorch(found: str = str(torch.__version__)) -> str:
    """Compare the version of PyTorch, such as `2.13.0+cpu`, with the supported ones."""
    oldest, newest = (".".join(map(str, each)) for each in TORCHES)
    pair = tuple(int(number) for number in re.findall(r"\d+", found)[:2])
    if pair >= TORCHES[0]:
        return found if pair <= TORCHES[1] else f"{found}, newer than {newest}, the newest that was tested"
    fix = "Install the locked version: make install; on a GPU image, a newer one there, then make install TORCH=keep."
    raise RedError(f"{found}, older than {oldest}", fix)


def driver(file: Path = Path("/proc/driver/nvidia/version")) -> str:
    """Report the version of the NVIDIA driver; one that this PyTorch cannot use is red in the check of the device."""
    if not file.exists():
        return "not used: there is no NVIDIA driver"
    numbers = re.search(r"\d+\.\d+(?:\.\d+)*", file.read_text().partition("Kernel Module")[2])
    build = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "for the CPU"
    return f"{numbers[0] if numbers else 'unknown version'}; PyTorch is a build {build}"


def devices(runtime: RuntimeConfig, ranks: Ranks) -> str:
    """Check the device of this rank, or, if this process is alone, of all ranks that training would start here.

    Raises:
        MachineError: A device is missing (see `training.devices.resolve_machine`).
    """
    local_ranks = range(runtime.num_devices) if ranks.world_size == 1 else (ranks.local_rank,)
    found = [device(resolve_device(runtime, replace(ranks, local_rank=local))) for local in local_ranks]
    return "; ".join(dict.fromkeys(found))


def device(chosen: torch.device) -> str:
    """Check that a device computes a product correctly, and that no other process fills the memory of a GPU."""
    name = f"{torch.cuda.get_device_name(chosen)} ({chosen})" if chosen.type == "cuda" else chosen.type
    try:
        product = _product_of_ones(chosen)
        problem = "" if product == 1024 else f"computes wrongly: a product of ones is {product}, expected 1024"
    except RuntimeError as error:
        problem = f"cannot compute: {_first_line(error)}"
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
            f"{name}, but only {_size(free)} of {_size(total)} are free",
            "Another process uses this GPU: end it (nvidia-smi names it), or ask the scheduler for whole GPUs.",
        )
    return f"{name}, {_size(free)} free"


def _product_of_ones(on: torch.device) -> float:
    ones = torch.ones(1024, 1024, device=on)
    return float((ones @ ones)[512, 512])


def compiler(runtime: RuntimeConfig, ranks: Ranks) -> str:
    """Compile a small program as `torch.compile` would: with the C++ compiler on a CPU, the C compiler on a GPU."""
    on = resolve_device(runtime, ranks).type
    if runtime.compile == "off" or (runtime.compile == "auto" and on == "mps"):
        return "not used: nothing is compiled (runtime.compile)"
    language, variable, default = ("c", "CC", "gcc") if on == "cuda" else ("c++", "CXX", "g++")
    asked = os.environ.get(variable, default)
    command = shutil.which(asked) or (shutil.which("clang++") if on == "cpu" else None)
    problem = f"there is no {language.upper()} compiler ({asked})"
    if command is not None:
        # What kernels need: a module that Python loads, and on a CPU the standard library and loops over threads.
        program = "#include <Python.h>\n" + ("#include <omp.h>\n#include <cmath>\n" if language == "c++" else "")
        flags = ["-shared", "-fPIC", f"-I{sysconfig.get_path('include')}", *(["-fopenmp"] if language == "c++" else [])]
        with tempfile.TemporaryDirectory() as folder:
            call = [command, "-x", language, "-", *flags, "-o", f"{folder}/program.so"]
            done = subprocess.run(call, input=program, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return f"{command} compiles, with Python.h"
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        problem = f"{command} cannot compile: {next((one for one in lines if 'error' in one), lines[0])}"
    fix = (
        "Install what is missing (Debian: apt install build-essential python3-dev; on a cluster often: module load "
        f"gcc), name another compiler in {variable}, or use runtime.compile=off."
    )
    if runtime.compile == "on":
        raise RedError(problem, fix)
    return f"{problem}: training runs uncompiled, at about a third of the speed. {fix}"


def cores(runtime: RuntimeConfig, usable: Sequence[int]) -> str:
    """Compare the cores of this process with the ranks that share them; srun gives each task its own."""
    num_ranks = 1 if int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1 else runtime.num_devices
    quotas = [text.split() for (text,) in _cgroups("cpu.max")]
    num_cores = min([float(len(usable)), *(int(quota) / int(period) for quota, period in quotas if quota != "max")])
    limit = f", {num_cores:g} of them by the quota of its cgroup" if num_cores < len(usable) else ""
    found = f"{len(usable)} core(s){limit} for {num_ranks} rank(s) with {runtime.num_workers} data workers each"
    if num_cores < num_ranks:
        fix = "Ask for more (srun --cpus-per-task, docker run --cpus, taskset), or lower runtime.num_devices."
        raise RedError(f"{found}, which wait for each other", fix)
    return found


def _cgroups(*names: str) -> list[list[str]]:
    """Return the contents of these files of each cgroup that this process is in, from its own to the root."""
    own = re.search(r"^0::/(.*)", _OWN_CGROUP.read_text(), flags=re.MULTILINE) if _OWN_CGROUP.exists() else None
    folder = _CGROUPS / (own[1] if own else "")
    folders = [each for each in (folder, *folder.parents) if each.is_relative_to(_CGROUPS)]
    there = [each for each in folders if all((each / name).is_file() for name in names)]
    return [[(each / name).read_text() for name in names] for each in there]


def memory_limit() -> int:
    """Return the bytes of memory that this process can use: what the system has available, or its cgroups leave."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    if _MEMINFO.exists():
        limits += [1024 * int(found) for found in re.findall(r"^MemAvailable:\s*(\d+)", _MEMINFO.read_text(), re.M)]
    for limit, used, stat in _cgroups("memory.max", "memory.current", "memory.stat"):
        cached = sum(int(found) for found in re.findall(r"^inactive_file (\d+)", stat, re.M))  # it is given up
        limits += [int(limit) - int(used) + cached] if limit.strip() != "max" else []
    return max(0, min(limits))


def planned(config: PipelineConfig, ranks: Ranks) -> Forecast:
    """Return the planner's forecast of the configured pretraining, for the memory of this rank.

    Raises:
        ConfigError: The batches do not suit the number of ranks, or a micro-batch is too small for a row.
        MachineError: The device is missing, or `runtime.attention` does not suit it.
    """
    assert config.corpus.kind != "none"
    assert config.tokenizer.kind != "none"  # validation requires both where there are phases
    runtime, on = config.runtime, resolve_device(config.runtime, ranks)
    precision = resolve_precision(config.pretrain.precision, on)
    if on.type == "cuda":  # the memory is this GPU's; the rest is what a plan for one with this precision assumes
        own = {"memory_bytes": torch.cuda.get_device_properties(on).total_memory}
        hardware = replace(GPUS["a100" if precision == "bf16" else "v100"], **own)
    else:
        hardware = Hardware(THIS_MACHINE, on.type, None, 1e12, memory_limit() // runtime.num_devices)
    training = Training(
        model=config.model,
        objective=config.objective,
        vocab_size=vocab_size(config.tokenizer, artifacts=ARTIFACTS, made_so={}),
        mask_prob=config.examples.masking.mask_prob,
        phases=phases_reached(config.pretrain.phases, config.pretrain.num_steps),
        optimizer=config.optimizer,
        runtime=runtime,
        device=replace(hardware.attention_device(precision), type=on.type),
    )
    text = TextSize(tokens=None, basis="not needed")
    return forecast(training, hardware, text, num_devices=runtime.num_devices * runtime.num_nodes)


def memory(plan: Forecast | None, *, searches: bool) -> str:
    """Compare each phase with the memory of a rank; `searches` if training looks for a fitting micro-batch itself."""
    if plan is None:
        return "not used: nothing is pretrained"
    usable = plan.hardware.usable_bytes
    found, fix = f"{_size(usable)} for a rank", ""
    for number, phase in enumerate(plan.phases, start=1):
        found += f"; phase {number}: {_size(phase.memory.total)} ± 25 % for {phase.micro_batch_size} sequences of "
        found += str(phase.max_length)
        if phase.memory.total <= usable:
            continue
        if not phase.fitting_micro_batch_size:
            raise RedError(f"{found}, not even one fits", "Take a smaller model, larger devices, or fewer CPU ranks.")
        choice = f"runtime.micro_batch_size={phase.fitting_micro_batch_size}"
        if searches:
            found += f": training takes smaller micro-batches by itself ({choice})"
        else:  # the sentence of the last phase stays: it has the longest sequences
            fix = f"Set {choice}, which changes no result."
    if fix:
        raise RedError(found, fix)
    return found


def _existing(path: Path) -> Path:
    """Return the folder, or the nearest folder above it that exists."""
    return next(each for each in (path.absolute(), *path.absolute().parents) if each.is_dir())


def disk(folder: Path, planned: Callable[[], Forecast | None], num_kept: int) -> str:
    """Compare the free space of the folder of runs with the checkpoints that a run keeps there."""
    place, needed = _existing(folder), 1 << 30
    try:
        if (plan := planned()) is not None:
            # Besides those that are kept: the best, and the next while the oldest is still there.
            needed += (num_kept + 2) * (4 * plan.parameters + plan.fullest.memory.optimizer)
    except BertlineError:
        pass  # the check of the memory says what is wrong
    free = shutil.disk_usage(place).free
    found = f"{_size(free)} free in {place}, at most {_size(needed)} needed"
    if free < needed:
        raise RedError(found, "Free space there, or choose another folder with runtime.runs_folder.")
    return found


@contextmanager
def _trial_folder(path: Path) -> Iterator[Path]:
    place = _existing(path)
    try:
        trial = tempfile.TemporaryDirectory(prefix=".doctor-", dir=place, ignore_cleanup_errors=True)
    except OSError as error:
        raise RedError(
            f"{place} cannot be written: {error.strerror}",
            "Free space or quota, mount it writable, give this user rights, or choose another runtime.runs_folder.",
        ) from error
    with trial as folder:
        yield Path(folder)


def lock(folder: Path) -> str:
    """Lock a file twice, as two processes would; then with the locks that SQLite uses."""
    problem = ""
    with _trial_folder(folder) as trial, (trial / "lock").open("a") as one, (trial / "lock").open("a") as other:
        try:
            fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                problem = "a file that is locked can be locked again: locks do nothing here"
            except BlockingIOError:
                fcntl.flock(one, fcntl.LOCK_UN)
                fcntl.lockf(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            problem = f"a lock is refused: {error.strerror}"
    if problem:
        raise RedError(
            problem,
            "Mount it with locks (Lustre: -o flock; NFS: version 4, or with lockd), or choose another folder with "
            "runtime.runs_folder: they keep two commands from the same run.",
        )
    return f"works in {_existing(folder)}"


def rename(folder: Path) -> str:
    """Replace a file many times while a thread reads it: it must always see one content or the other, whole."""
    contents, stop, problems = ("a" * 65_536, "b" * 65_536), threading.Event(), list[str]()

    def read(target: Path) -> None:
        while not stop.is_set() and not problems:
            try:
                if target.read_text() not in contents:
                    problems.append("half of a file")
            except OSError as error:
                problems.append(str(error.strerror))

    with _trial_folder(folder) as trial:
        (trial / "target").write_text(contents[0])
        reader = threading.Thread(target=read, args=(trial / "target",), daemon=True)
        reader.start()
        for number in range(100):
            (trial / "new").write_text(contents[number % 2])
            os.replace(trial / "new", trial / "target")  # noqa: PTH105  (a test cannot stand in for Path.replace)
        stop.set()
        reader.join()
    if problems:
        raise RedError(
            f"a file that is being replaced is read as: {problems[0]}",
            "Use a file system with atomic rename, or another folder with runtime.runs_folder: a kill could damage "
            "checkpoints here.",
        )
    return "atomic under a reader"


def launched_ranks(environment: MutableMapping[str, str]) -> Ranks:
    """Read the rank of this process from the variables of torchrun or srun; without them it is alone."""
    adopt_srun_ranks(environment)
    if int(environment.get("WORLD_SIZE", "1")) == 1:
        return Ranks()
    rank, world_size, local_rank = (int(environment[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    return Ranks(rank=rank, world_size=world_size, local_rank=local_rank)


def all_reduce(runtime: RuntimeConfig, ranks: Ranks, findings: Sequence[Finding], of_ranks: list[list[Finding]]) -> str:
    """Form the process group that training would form, sum over its ranks, and measure the bandwidth once.

    `of_ranks` is filled, by rank, with what is red among the `findings` of each one.

    Raises:
        MachineError: The ranks do not meet (see `training.process_group.process_group`).
    """
    chosen = resolve_device(runtime, ranks)
    on = chosen if chosen.type == "cuda" else torch.device("cpu")
    name, num_bytes = _named(ranks), (64 if on.type == "cuda" else 16) << 20
    with process_group(Machine(device=on, precision="fp32", compile=False, ranks=ranks), _PEER_TIMEOUT_S):
        # Each rank has a row of its own, which is zero on the others.
        values = torch.arange(1024, dtype=torch.float32, device=on)
        rows = torch.zeros(ranks.world_size, 1024, device=on)
        rows[ranks.rank] = values + ranks.rank
        dist.all_reduce(rows)
        wrong = (rows != values + torch.arange(ranks.world_size, device=on)[:, None]).any(dim=1)
        large = torch.ones(num_bytes // 4, device=on)
        dist.all_reduce(large)  # opens connections
        float(large[0])  # waits for a GPU
        started = time.monotonic()
        dist.all_reduce(large)
        float(large[0])
        took_s = max(time.monotonic() - started, 1e-9)
        red = [replace(one, found=f"{name}: {one.found}") for one in findings if not one.ok]
        gathered: list[Any] = [None] * ranks.world_size
        dist.all_gather_object(gathered, (name, wrong.tolist(), red))
        backend = dist.get_backend()
    of_ranks += [red for _, _, red in gathered]
    named = [gathered[rank][0] for rank in range(ranks.world_size) if any(seen[rank] for _, seen, _ in gathered)]
    if named:
        raise RedError(
            f"the sum over the ranks is wrong by the part of {', '.join(named)} ({backend})",
            "Do not train with this rank: take its node out and have its memory, GPU and network card tested (on "
            "GPUs, see whether NCCL_P2P_DISABLE=1 makes it right).",
        )
    bytes_per_s = 2 * (ranks.world_size - 1) / ranks.world_size * num_bytes / took_s  # bus bandwidth, as nccl-tests
    found = f"correct over {ranks.world_size} ranks with {backend}, {bytes_per_s / 1e9:.2f} GB/s"
    if ranks.world_size != runtime.num_devices * runtime.num_nodes:
        raise RedError(
            f"{found}; the configuration has {runtime.num_devices} x {runtime.num_nodes} ranks",
            "Give the doctor the run's runtime.num_devices and runtime.num_nodes, or start as many ranks.",
        )
    return found


def mlflow(tracking: TrackingConfig) -> str:
    """Check that runs can be recorded in MLflow: a trial run is written, and deleted again."""
    if not tracking.enabled:
        return "not used: tracking.enabled is false"
    if (file := database_file(tracking.uri)) is not None:
        return sqlite_database(file, setting="tracking.uri")
    from bertline.tracking.store import ArtifactsRefusedError, try_run

    try:
        try_run(tracking.uri, tracking.experiment_name)
    except Exception as error:
        what = "artifact" if isinstance(error, ArtifactsRefusedError) else "run"
        cause: BaseException = error
        while cause.__context__ is not None:  # libraries wrap what the system said, such as "Connection refused"
            cause = cause.__context__
        raise RedError(
            f"no {what} can be written to {masked(tracking.uri)}: {_first_line(cause)}",
            "Start the server and open its port for this machine, or use tracking.uri=sqlite:///runs/mlflow.db. If it "
            "answers, look at its log: it must let this user in (MLFLOW_TRACKING_TOKEN or MLFLOW_TRACKING_USERNAME, "
            "_PASSWORD), allow this address (mlflow server --allowed-hosts), have a place for artifacts "
            "(--artifacts-destination), and not have deleted tracking.experiment_name.",
        ) from error
    return f"{masked(tracking.uri)} takes runs and artifacts"


def studies(tracking: TrackingConfig, *, num_machines: int = 1) -> str:
    """Check the database of Optuna's studies, which `num_machines` share.

    Raises:
        ConfigError: The address is none of a database.
    """
    from bertline.sweep.studies import database_url

    url = database_url(os.environ.get(STUDIES_VARIABLE) or tracking.studies_url)
    if url.get_backend_name() != "sqlite":
        return _postgresql(url)
    found = sqlite_database(Path(str(url.database)), setting="tracking.studies_url")
    if num_machines > 1:
        raise RedError(
            f"{found}; the {num_machines} machines of a sweep cannot share it",
            "Use PostgreSQL, tracking.studies_url=postgresql://USER@HOST/DATABASE, or runtime.launcher.sweep_tasks=1.",
        )
    return found


def _postgresql(url: Any) -> str:
    import sqlalchemy

    from bertline.sweep.studies import shown, without_password

    writable = (
        "SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off'"
        " AND has_schema_privilege(current_schema(), 'CREATE')"
    )
    try:
        engine = sqlalchemy.create_engine(url, connect_args={"connect_timeout": _CONNECT_S})
        with closing(engine.connect()) as connection:
            is_writable = connection.execute(sqlalchemy.text(writable)).scalar()
    except ImportError:
        raise RedError(
            "tracking.studies_url is a PostgreSQL database, and psycopg is not installed",
            "Install it: pip install 'bertline[postgresql]'.",
        ) from None
    except sqlalchemy.exc.SQLAlchemyError as error:
        reason = without_password(_first_line(getattr(error, "orig", None) or error), url)
        raise RedError(
            f"{shown(url)} does not let us in: {reason}",
            "Start the server, correct tracking.studies_url, create the database (createdb NAME), or give the password "
            "in ~/.pgpass, PGPASSWORD or BERTLINE_STUDIES_URL.",
        ) from None
    if not is_writable:
        raise RedError(
            f"{shown(url)} is read-only for this user",
            "Use the primary server, and let the user create tables: GRANT CREATE ON SCHEMA public TO NAME.",
        )
    return f"{shown(url)}, writable"


def sqlite_database(file: Path, *, setting: str) -> str:
    """Check that a database file can be written, in a transaction that is rolled back; a missing one stays missing."""
    fix = f"Correct the rights of file and folder, move a damaged file away, or choose another with {setting}."
    if not file.exists():
        if os.access(_existing(file.parent), os.W_OK):
            return f"{file} is made by the first run"
        raise RedError(f"{file} cannot be made: {_existing(file.parent)} is not writable", fix)
    try:
        with closing(sqlite3.connect(file, timeout=3.0, isolation_level=None)) as connection:
            for statement in ("BEGIN IMMEDIATE", "CREATE TABLE doctor_was_here (number INTEGER)", "ROLLBACK"):
                connection.execute(statement)
    except sqlite3.DatabaseError as error:
        if "locked" in str(error):
            return f"{file} is being written by another process"
        raise RedError(f"{file} cannot be used: {error}", fix) from error
    return f"{file}, SQLite, writable"


def slurm(runtime: RuntimeConfig) -> str:
    """Check that Slurm's controller answers, and would take the job of the configuration."""
    launcher, fix = runtime.launcher, "Start slurmctld and munged, or correct slurm.conf (SLURM_CONF)."
    calls = [(["scontrol", "ping"], "", fix), (["squeue", "--noheader", "--me"], "", fix)]
    if isinstance(launcher, SlurmLauncherConfig):
        folder = Path(runtime.runs_folder) / "doctor"
        script = job_script(folder, "bertline.doctor:none", runtime, name="doctor", ranks=True)
        fix = "Correct runtime.launcher, runtime.num_nodes or runtime.num_devices; sinfo shows partitions and nodes."
        calls.append((["sbatch", "--test-only"], script, fix))
    elif "SLURM_JOB_ID" not in os.environ:
        return "not used: runtime.launcher is another one"
    for command, given, fix in calls:
        try:
            done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=_CONNECT_S, check=False)
        except FileNotFoundError:
            raise RedError(
                f"{command[0]} cannot be found",
                "Start from a login node, or module load slurm; in a container, bind its commands and munge's socket.",
            ) from None
        except subprocess.TimeoutExpired:
            raise RedError(f"{' '.join(command)}: no answer within {_CONNECT_S} s", fix) from None
        said = done.stdout + done.stderr
        if done.returncode != 0 or ("is DOWN" in said and "is UP" not in said):
            lines = said.strip().splitlines() or [f"exit status {done.returncode}"]
            raise RedError(f"{' '.join(command)}: {lines[-1]}", fix)
    return "answers, and would take the job" if len(calls) == 3 else "answers"


def _named(ranks: Ranks) -> str:
    return f"rank {ranks.rank} ({os.environ.get('SLURMD_NODENAME') or socket.gethostname()})"


def _first_line(error: object) -> str:
    lines = masked(str(error)).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def _size(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:,.1f} GB" if num_bytes >= 1e8 else f"{num_bytes / 1e6:,.1f} MB"
