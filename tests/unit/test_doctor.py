"""Checks of a machine, each green and red with the sentence that fixes it; servers and ranks: `tests/integration`."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import functools
import math
import os
import re
import shutil
import tempfile
import threading
import time
from types import SimpleNamespace
from unittest import mock

import pytest
import torch

from bertline import doctor
from bertline.config import pipeline_config
from bertline.doctor import RedError, finding_of
from bertline.foundation.errors import ConfigError, MachineError
from bertline.training.devices import Ranks

ALONE = Ranks()
SLURM = ["runtime/launcher=slurm"]


@pytest.fixture
def config(composed):
    """`config("model=small", ...)`: the validated configuration."""
    return lambda *overrides: pipeline_config(composed(*overrides))


@pytest.fixture
def runtime(config):
    """`runtime(num_devices=2)`: the runtime section with changes."""
    return functools.partial(dataclasses.replace, config().runtime)


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No variables of a launcher."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)


def red(run, *arguments, **named):
    """What a check found, and the sentence that fixes it."""
    with pytest.raises(RedError) as raised:
        run(*arguments, **named)
    return raised.value.args


def fails(error):
    return mock.Mock(side_effect=error)


def test_a_check_that_hangs_is_red_in_time():
    started, never = time.monotonic(), threading.Event()
    finding = finding_of("MLflow", lambda: str(never.wait(600)), "Start it.", limit_s=0.1)
    never.set()
    assert (finding.ok, finding.found, finding.fix) == (False, "no answer within 0 s", "Start it.")
    assert time.monotonic() - started < doctor._LIMIT_S / 2


@pytest.mark.parametrize(
    ("error", "found", "fix"),
    [
        (RedError("no space", "Free some."), "no space", "Free some."),
        (MachineError("there is no GPU. Use the CPU."), "there is no GPU", "Use the CPU."),
        (ValueError("https://ada:s3cret@host\nmore"), "ValueError: https://ada:***@host", "Advice."),
    ],
)
def test_whatever_a_check_raises_is_red_with_advice_and_without_passwords(error, found, fix):
    finding = finding_of("x", fails(error), "Advice.")
    assert (finding.ok, finding.found, finding.fix) == (False, found, fix)


@pytest.mark.parametrize("broken", [False, True])
def test_the_exit_status_and_the_last_line_say_whether_anything_is_red(config, monkeypatch, capsys, broken):
    checks = [("disk", lambda: "much", ""), ("lock", fails(RedError("none", "Mount it.")), "")]
    monkeypatch.setattr(doctor, "checks", lambda config, ranks: checks[: 1 + broken])
    assert doctor.examine(config()) == int(broken)
    said = capsys.readouterr().out
    assert said.startswith("ok  disk        much\n")
    assert ("RED lock" in said and "-> Mount it." in said, "Nothing is red" in said) == (broken, not broken)


@pytest.fixture
def gpu(monkeypatch):
    """A GPU with 79 of 80 GB free; what it has free and computes is changed by `gpu(free=..., product=...)`."""
    facts = {"free": 79e9, "product": 1024.0}
    monkeypatch.setattr(doctor, "resolve_device", lambda runtime, ranks: torch.device("cuda", ranks.local_rank))
    monkeypatch.setattr(doctor, "_product_of_ones", lambda on: facts["product"])
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda on: "NVIDIA Imagined")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda on: (int(facts["free"]), int(80e9)))
    return lambda **changes: facts.update(changes)


def test_all_devices_that_training_would_use_here_are_checked_and_under_a_launcher_the_ranks_own(runtime, gpu):
    assert doctor.devices(runtime(num_devices=2), ALONE).count("79.0 GB free") == 2
    found = doctor.devices(runtime(num_devices=4), Ranks(rank=3, world_size=4, local_rank=3))
    assert found == "NVIDIA Imagined (cuda:3), 79.0 GB free"


def test_a_device_that_computes_wrongly_or_not_at_all_or_is_used_is_red(runtime, gpu, monkeypatch):
    gpu(free=30e9)
    assert "nvidia-smi" in red(doctor.devices, runtime(), ALONE)[1]
    gpu(product=1000.0)
    assert "expected 1024" in red(doctor.devices, runtime(), ALONE)[0]
    monkeypatch.setattr(doctor, "_product_of_ones", fails(RuntimeError("no kernel image is available\nmore")))
    found, fix = red(doctor.devices, runtime(), ALONE)
    assert (found.endswith("no kernel image is available"), "build of PyTorch for this GPU" in fix) == (True, True)


def test_the_limit_of_a_cgroup_above_counts(monkeypatch, tmp_path):
    (tmp_path / "job/step").mkdir(parents=True)
    (tmp_path / "own").write_text("0::/job/step\n")
    for name, content in {"step/memory.max": "max", "memory.max": "700000"}.items():
        (tmp_path / "job" / name).write_text(f"{content}\n")
    monkeypatch.setattr(doctor, "_CGROUPS", tmp_path)
    monkeypatch.setattr(doctor, "_OWN_CGROUP", tmp_path / "own")
    assert doctor.memory_limit() == 700_000


def planned(config, monkeypatch, memory_bytes, *overrides):
    monkeypatch.setattr(doctor, "resolve_precision", lambda asked, on: "bf16")
    monkeypatch.setattr(doctor, "memory_limit", lambda: memory_bytes)
    return doctor.planned(config("experiment=bert_large", "runtime.device=cpu", *overrides), ALONE)


def test_each_phase_is_compared_with_the_memory_of_a_rank(config, runtime, monkeypatch):
    roomy = planned(config, monkeypatch, 2 * 10**12)
    assert re.findall(r"phase \d: [\d.,]+ GB", doctor.memory(roomy, runtime()))[1] > "phase 2: 100"
    needed = [phase.memory.total for phase in roomy.phases]
    just = planned(config, monkeypatch, math.ceil(max(needed) / 0.95))
    assert doctor.memory(just, runtime())
    tight = planned(config, monkeypatch, 80 * 10**9)
    # The size is that of the phase with the longest sequences.
    fix = f"Set runtime.micro_batch_size={tight.phases[1].fitting_micro_batch_size}, which changes no result."
    assert red(doctor.memory, tight, runtime())[1] == fix
    on_gpu = dataclasses.replace(tight, hardware=dataclasses.replace(tight.hardware, name="h100"))
    assert "takes smaller micro-batches by itself" in doctor.memory(on_gpu, runtime())
    assert red(doctor.memory, on_gpu, runtime(micro_batch_size=256))[1] == fix
    found, fix = red(doctor.memory, planned(config, monkeypatch, 4 * 10**9), runtime())
    assert ("not even one fits" in found, "smaller model" in fix) == (True, True)
    assert "not used" in doctor.memory(None, runtime())


def test_the_disk_has_room_for_the_checkpoints_and_a_folder_that_is_missing_is_not_made(tmp_path, monkeypatch):
    memory = SimpleNamespace(memory=SimpleNamespace(optimizer=8 * 10**8))
    plan = SimpleNamespace(parameters=10**8, fullest=memory)
    usage = SimpleNamespace(free=6 * 10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage)
    assert "5.87 GB needed" in doctor.disk(tmp_path / "runs", lambda: plan, 2)
    usage.free = 5 * 10**9
    assert "runtime.runs_folder" in red(doctor.disk, tmp_path / "runs", lambda: plan, 2)[1]
    usage.free = 5 * 10**8
    assert "1.07 GB needed" in red(doctor.disk, tmp_path / "runs", fails(ConfigError("too many ranks")), 2)[0]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_or_locks_nothing_is_red(tmp_path, monkeypatch):
    doctor.try_files(tmp_path)
    monkeypatch.setattr(fcntl, "flock", lambda handle, flags: None)
    found, fix = red(doctor.try_files, tmp_path)
    assert ("locked again" in found, "-o flock" in fix) == (True, True)
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", fails(OSError(errno.EROFS, os.strerror(errno.EROFS))))
    assert red(doctor.try_files, tmp_path)[0] == f"{tmp_path} cannot be written: Read-only file system"


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """`commands(sbatch="script", ...)`: Slurm's commands as shell scripts; nothing else is on the path."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def write(**scripts):
        for name, script in {"sbatch": "exit 0", "squeue": "exit 0", "scontrol": "echo is UP", **scripts}.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / name).chmod(0o755)

    return write


def test_slurm_is_looked_at_where_it_is_used(config, commands, monkeypatch):
    assert "not used" in doctor.slurm(config().runtime)
    assert "module load slurm" in red(doctor.slurm, config(*SLURM).runtime)[1]
    commands(scontrol="echo primary is UP; echo backup is DOWN")
    assert doctor.slurm(config(*SLURM).runtime) == "answers, and would take the job"
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert doctor.slurm(config().runtime) == "answers"


@pytest.mark.parametrize(
    ("scripts", "said", "advice"),
    [
        ({"scontrol": "echo 'Slurmctld(primary) at login1 is DOWN'"}, "is DOWN", "slurmctld"),
        ({"squeue": "echo 'Unable to contact slurm controller' >&2; exit 1"}, "Unable to contact", "slurmctld"),
        ({"sbatch": "echo 'sbatch: error: invalid partition' >&2; exit 1"}, "invalid partition", "runtime.launcher"),
    ],
)
def test_a_controller_that_is_silent_or_refuses_the_job_is_red(config, commands, monkeypatch, scripts, said, advice):
    commands(**scripts)
    found, fix = red(doctor.slurm, config(*SLURM).runtime)
    assert (said in found, advice in fix) == (True, True)
