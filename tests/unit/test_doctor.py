"""Checks of a machine, each green and red with the sentence that fixes it; servers and ranks: `tests/integration`."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import functools
import json
import math
import os
import re
import shutil
import sqlite3
import subprocess
import sysconfig
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
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
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "BERTLINE_STUDIES_URL", "SLURM_JOB_ID", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)


ROOT = Path(__file__).resolve().parents[2]


def red(run, *arguments, **named):
    """What a check found, and the sentence that fixes it."""
    with pytest.raises(RedError) as raised:
        run(*arguments, **named)
    return raised.value.args


def fails(error):
    return mock.Mock(side_effect=error)


def system_error(number):
    return OSError(number, os.strerror(number))


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
def test_the_exit_status_and_the_json_say_whether_anything_is_red(config, monkeypatch, capsys, broken):
    checks = [("disk", lambda: "much", ""), ("lock", fails(RedError("none", "Mount it.")), "")]
    monkeypatch.setattr(doctor, "checks", lambda config, ranks: checks[: 1 + broken])
    assert doctor.examine(config(), as_json=True) == int(broken)
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is not broken
    assert report["findings"][0] == {"check": "disk", "ok": True, "found": "much", "fix": ""}
    assert [one["fix"] for one in report["findings"][1:]] == ["Mount it."] * broken
    assert doctor.examine(config(), as_json=False) == int(broken)
    assert ("RED lock" in (said := capsys.readouterr().out), "-> Mount it." in said) == (broken, broken)


def test_the_state_of_dvc_is_in_the_project_and_red_where_others_can_write(tmp_path, monkeypatch):
    monkeypatch.delenv("DVC_SITE_CACHE_DIR", raising=False)
    for name in (".dvc/config", ".dvc_site/repo/.gitignore"):
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "--quiet"], check=True)
    assert str(tmp_path / ".dvc_site/repo") in doctor.state_of_dvc()
    (tmp_path / ".dvc_site").chmod(0o777)
    found, fix = red(doctor.state_of_dvc)
    assert str(tmp_path / ".dvc_site") in found and "chmod o-w" in fix


def test_only_supported_torches_are_green_and_a_newer_one_is_said():
    assert doctor.pytorch("2.11.0a0+nv25.12").startswith("2.11.0a0+nv25.12, with Python 3.")
    assert "newer than 2.13" in doctor.pytorch("2.14.0")
    assert "TORCH=keep" in red(doctor.pytorch, "2.10.1")[1]


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


def test_this_machines_compiler_is_tried_with_a_program(runtime):
    if shutil.which("g++") is None:
        pytest.skip("no compiler here")
    assert "compiles, with Python.h" in doctor.compiler(runtime(device="cpu", compile="on"), ALONE)


def test_no_compiler_is_red_where_compilation_is_asked_for_and_only_said_elsewhere(runtime, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    found, fix = red(doctor.compiler, runtime(device="cpu", compile="on"), ALONE)
    assert (found, "apt install build-essential" in fix) == ("there is no C++ compiler (g++)", True)
    assert "a third of the speed" in doctor.compiler(runtime(device="cpu", compile="auto"), ALONE)
    assert "not used" in doctor.compiler(runtime(device="cpu", compile="off"), ALONE)


def test_a_gpu_needs_the_c_compiler_and_a_compiler_that_fails_is_quoted(runtime, gpu, monkeypatch, tmp_path):
    monkeypatch.setenv("CC", "icx-of-another-machine")
    assert "no C compiler (icx-of-another-machine)" in red(doctor.compiler, runtime(compile="on"), ALONE)[0]
    (tmp_path / "cc").write_text(
        "#!/bin/sh\necho 'In file x:' >&2; echo 'fatal error: Python.h: No such' >&2; exit 1\n"
    )
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("CC", str(tmp_path / "cc"))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    found, fix = red(doctor.compiler, runtime(compile="on"), ALONE)
    assert ("fatal error: Python.h: No such" in found, "python3-dev" in fix) == (True, True)


@pytest.fixture
def cgroup(monkeypatch, tmp_path):
    """A cgroup with a quota of 1.5 cores and 0.6 MB of memory left, of which 0.1 MB is cache."""
    for name, content in {
        "job/cpu.max": "150000 100000", "job/memory.max": "1000000", "job/memory.current": "400000",
        "job/memory.stat": "anon 300000\ninactive_file 100000", "job/step/cpu.max": "max 100000",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{content}\n")
    (tmp_path / "own").write_text("0::/job/step\n")
    monkeypatch.setattr(doctor, "_CGROUPS", tmp_path)
    monkeypatch.setattr(doctor, "_OWN_CGROUP", tmp_path / "own")


def test_limits_of_cgroups_above_count(runtime, cgroup):
    assert doctor.memory_limit() == 700_000
    found, fix = red(doctor.cores, runtime(num_devices=2), range(64))
    assert ("64 core(s), 1.5 of them by the quota" in found, "--cpus-per-task" in fix) == (True, True)


def test_ranks_that_share_a_core_are_red_unless_srun_gives_each_its_own(runtime, monkeypatch):
    monkeypatch.setattr(doctor, "_CGROUPS", Path("/nowhere"))
    assert "2 core(s) for 2 rank(s)" in doctor.cores(runtime(num_devices=2), [0, 1])
    assert "1 core(s) for 2 rank(s)" in red(doctor.cores, runtime(num_devices=2), [0])[0]
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    assert "1 core(s) for 1 rank(s)" in doctor.cores(runtime(num_devices=2), [0])


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


def test_the_folder_is_left_as_it_was_and_one_that_cannot_be_written_is_red(tmp_path, monkeypatch):
    assert doctor.folder(tmp_path / "runs")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(tempfile, "TemporaryDirectory", fails(system_error(errno.EROFS)))
    found, fix = red(doctor.folder, tmp_path / "runs")
    assert (found, "mount it writable" in fix) == (f"{tmp_path} cannot be written: Read-only file system", True)


@pytest.mark.parametrize(
    ("owner", "function", "fault", "said"),
    [
        (fcntl, "flock", fails(system_error(errno.ENOSYS)), "refuses a lock: Function not implemented"),
        (fcntl, "flock", lambda handle, flags: None, "locked again"),
        (fcntl, "lockf", fails(system_error(errno.ENOLCK)), "refuses a lock: No locks available"),
        (Path, "replace", fails(system_error(errno.EPERM)), "refuses to replace a file that is open: Operation not"),
        (Path, "replace", lambda new, target: target.write_text("new"), "is read as ('new', 'new')"),
    ],
)
def test_locks_that_are_missing_or_lock_nothing_and_renames_that_are_not_atomic_are_red(
    tmp_path, monkeypatch, owner, function, fault, said
):
    monkeypatch.setattr(owner, function, fault)
    found, fix = red(doctor.folder, tmp_path)
    assert (said in found, "-o flock" in fix, "atomic rename" in fix) == (True, True, True)


def tracking(config, uri="sqlite:///none.db", **changes):
    return config(f"tracking.uri={uri}", *(f"tracking.{key}={value}" for key, value in changes.items())).tracking


def test_a_database_file_is_tried_and_stays_as_it_is(tmp_path):
    file = tmp_path / "studies.db"
    assert "made by the first run" in doctor.sqlite_database(file, setting="x")
    assert list(tmp_path.iterdir()) == []
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE study (id INTEGER)")
        before = file.read_bytes()
        assert doctor.sqlite_database(file, setting="x").endswith("SQLite, writable")
        assert file.read_bytes() == before
        connection.execute("BEGIN EXCLUSIVE")
        assert "another process" in doctor.sqlite_database(file, setting="x")


def test_an_mlflow_server_that_is_not_there_is_red_and_tracking_that_is_off_is_not_used(config):
    found, fix = red(doctor.mlflow, tracking(config, "http://127.0.0.1:9"))
    assert re.search("no run with an artifact can be written.*refused", found) and "Start the server" in fix
    assert "not used" in doctor.mlflow(tracking(config, enabled="false"))


@pytest.mark.parametrize(
    "address", ["postgresql://ada:s3cret@127.0.0.1:9/studies", "postgresql://127.0.0.1:9/studies?password=s3cret"]
)
def test_a_studies_database_that_is_not_there_is_red_without_its_password(config, monkeypatch, address):
    pytest.importorskip("psycopg", reason="the extra `postgresql` is not installed")
    monkeypatch.setenv("BERTLINE_STUDIES_URL", address)
    found, fix = red(doctor.studies, tracking(config))
    assert ("~/.pgpass" in fix, "s3cret" in found + fix) == (True, False)


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
        ({"scontrol": "exec /bin/sleep 30"}, "no answer within", "slurmctld"),
        ({"sbatch": "echo 'sbatch: error: invalid partition' >&2; exit 1"}, "invalid partition", "runtime.launcher"),
    ],
)
def test_a_controller_that_is_silent_or_refuses_the_job_is_red(config, commands, monkeypatch, scripts, said, advice):
    monkeypatch.setattr(doctor, "_CONNECT_S", 2)
    commands(**scripts)
    found, fix = red(doctor.slurm, config(*SLURM).runtime)
    assert (said in found, advice in fix) == (True, True)
