"""Jobs of Slurm without Slurm: what is asked for, what its answers mean, when a job has started often enough."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tiny
from bertline.foundation.errors import BertlineError, ConfigError, MachineError
from bertline.run import slurm
from bertline.run.folder import Status, write_status
from bertline.training.config import SlurmLauncherConfig


def launcher(**changes: Any) -> SlurmLauncherConfig:
    """A launcher that leaves all to the cluster but one GPU a device, with changes."""
    none = dict.fromkeys(("account", "partition", "time", "memory", "cpus_per_task", "container", "python"))
    more = dict.fromkeys(("setup", "flags", "srun_flags"), ())
    fields = {**none, **more, "gpus": True, "sweep_tasks": 1, "stop_before_s": 120, "max_requeues": 3}
    return SlurmLauncherConfig(kind="slurm", **{**fields, **changes})


def says(programs: Path, name: str, text: str, *, status: int = 0, error: str = "") -> None:
    """Make one that prints a text, and an error, and ends with a status."""
    path = programs / name
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\necho '{error}' >&2\nexit {status}\n")
    path.chmod(0o755)


def script(folder: Path, config: SlurmLauncherConfig, *, ranks: bool = True) -> list[str]:
    runtime = tiny.runtime(num_nodes=2, num_devices=8, launcher=config)
    return slurm.job_script(folder / "run", runtime, name="bertline-x", ranks=ranks).splitlines()


def srun(folder: Path, config: SlurmLauncherConfig, *, ranks: bool) -> list[str]:
    runtime = tiny.runtime(num_nodes=2, num_devices=8, launcher=config)
    return slurm.srun_command(folder, runtime, ranks=ranks)


def asked(lines: list[str]) -> set[str]:
    return {line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")}


def test_a_pretraining_asks_for_its_nodes_and_devices_and_nothing_that_was_left_to_the_cluster(tmp_path: Path) -> None:
    config = launcher(account="physics", partition="gpu", time="4:00:00", memory="64G", cpus_per_task=6)
    flags = asked(script(tmp_path, config))
    assert {"--nodes=2", "--ntasks-per-node=8", "--gpus-per-node=8", "--cpus-per-task=6"} <= flags
    assert {"--account=physics", "--partition=gpu", "--time=4:00:00", "--mem=64G"} <= flags
    assert {"--requeue", "--signal=USR1@120", "--dependency=singleton", "--open-mode=append"} <= flags
    left = ("--account", "--partition", "--time", "--mem", "--cpus-per-task", "--gpus")
    assert not [flag for flag in asked(script(tmp_path, launcher(gpus=False))) if flag.startswith(left)]


def test_a_sweep_asks_for_one_task_that_has_all_devices_of_a_node(tmp_path: Path) -> None:
    flags = asked(script(tmp_path, launcher(cpus_per_task=6, sweep_tasks=3), ranks=False))
    assert {"--nodes=1", "--ntasks-per-node=1", "--gpus-per-node=8", "--cpus-per-task=48", "--array=0-2"} <= flags
    assert not any(flag.startswith("--dependency") for flag in flags)  # its tasks have one name, and run at once
    command = srun(tmp_path, launcher(cpus_per_task=6), ranks=False)
    assert {"--nodes=1", "--ntasks-per-node=1", "--cpus-per-task=48"} <= set(command)


def test_the_job_script_runs_setup_first_passes_flags_on_and_is_a_script_of_bash(tmp_path: Path) -> None:
    setup = ("module load cuda", "if true; then echo yes; fi")
    lines = script(tmp_path, launcher(setup=setup, flags=("--qos=low", "-C a100")))
    assert lines.index(setup[0]) + 1 == lines.index(setup[1]) == len(lines) - 2
    assert {"--qos=low", "-C a100"} <= asked(lines)
    assert lines[-1].startswith(f"exec {sys.executable} -m bertline.run.slurm ")
    path = tmp_path / "job.sh"
    path.write_text("\n".join(lines))
    subprocess.run(["bash", "-n", str(path)], check=True)


def test_the_container_stands_before_the_python_of_the_ranks(tmp_path: Path) -> None:
    config = launcher(container="apptainer exec --nv 'my image.sif'", python="/opt/python", srun_flags=("--mpi=none",))
    command = srun(tmp_path, config, ranks=True)
    at = command.index("apptainer")
    assert command[at - 1 : at + 6] == ["--mpi=none", "apptainer", "exec", "--nv", "my image.sif", "/opt/python", "-m"]
    assert "/opt/python" in shlex.split(script(tmp_path, config)[-1])


def test_folders_with_spaces_stay_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "my runs"
    place.mkdir()
    monkeypatch.chdir(place)
    assert f"--chdir='{place}'" in asked(script(Path("runs"), launcher()))
    bad = tmp_path / "100%"
    bad.mkdir()
    monkeypatch.chdir(bad)
    with pytest.raises(ConfigError, match=r"has a %"):
        script(Path("runs"), launcher())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"flags": ("--job-name=mine",)}, "--job-name"), ({"flags": ("--job-name mine",)}, "--job-name"),
        ({"flags": ("--job=mine",)}, "--job"), ({"flags": ("-Jmine",)}, "-Jmine"), ({"flags": ("-J mine",)}, "-J"),
        ({"flags": ("--array=0-3",)}, "--array"), ({"flags": ("-o here",)}, "-o"),
        ({"flags": ("qos=low",)}, "--qos=low"), ({"setup": ("a\nb",)}, "one line"), ({"time": "soon"}, "4:00:00"),
        ({"stop_before_s": 65536}, "at most 65535"), ({"sweep_tasks": 0}, "at least 1"),
        ({"time": "0:05:00", "stop_before_s": 200}, "at most half of time"),
        ({"max_requeues": -1}, "at least 0"), ({"cpus_per_task": 0}, "cpus_per_task"),
    ],
)  # fmt: skip
def test_a_wrong_launcher_is_refused_with_the_rule(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        launcher(**changes)


def test_a_silent_controller_is_neither_an_empty_queue_nor_a_refusal(programs: Path) -> None:
    for program in ("squeue", "scontrol"):
        says(programs, program, "", status=1, error="slurm_load_jobs error: Unable to contact slurm controller")
    with pytest.raises(slurm.UnansweredError, match="Unable to contact"):
        slurm.job_named("x")
    with pytest.raises(slurm.UnansweredError, match="Unable to contact"):
        slurm._answered("scontrol", "requeue", "7")
    says(programs, "scontrol", "", status=1, error="Requeue is not allowed, contact help@example.org")
    assert slurm._answered("scontrol", "requeue", "7").returncode == 1


def run_job(folder: Path) -> Status:
    runtime = tiny.runtime(launcher=launcher())
    return slurm.run_job(folder, runtime, ranks=True, freeze=(folder / "frozen").touch)


def test_a_refused_submission_is_told_in_slurms_words(programs: Path, tmp_path: Path) -> None:
    says(programs, "scontrol", "")
    says(programs, "squeue", "")
    says(programs, "sbatch", "", status=1, error="sbatch: error: invalid account")
    with pytest.raises(MachineError, match=r"did not take the job: invalid account\. The job script"):
        run_job(tmp_path)
    assert (tmp_path / "frozen").exists()


def test_a_job_of_the_name_is_followed_and_not_submitted_again(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    says(programs, "scontrol", "JobId=7 JobState=PENDING Reason=None")
    says(programs, "sbatch", "8")
    says(programs, "squeue", "7|RUNNING|None")
    (tmp_path / "log").write_text("pretraining: step 5 of 9\n")

    def finish(seconds: float) -> None:
        write_status(tmp_path, Status(state="finished", metrics={"loss": 1.0}))

    monkeypatch.setattr(slurm.time, "sleep", finish)
    assert run_job(tmp_path).metrics == {"loss": 1.0}
    out = capsys.readouterr().out
    assert "attached to job 7" in out and "step 5 of 9" in out
    assert not (tmp_path / "frozen").exists()


def test_a_job_that_left_the_queue_before_its_work_was_done_shows_its_last_words(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "FILE_SYSTEM_LAG_S", 0)
    monkeypatch.setattr(slurm, "_ASK_QUEUE_S", 0)
    says(programs, "scontrol", "JobId=7 JobState=FAILED Reason=NonZeroExitCode")
    says(programs, "sbatch", "7")
    says(programs, "squeue", "")
    (tmp_path / "log").write_text("module: command not found\n")
    with pytest.raises(BertlineError, match=r"(?s)job 7 ended.*FAILED, NonZeroExitCode.*module: command not found"):
        run_job(tmp_path)


def test_a_job_without_progress_starts_so_often_and_no_more(tmp_path: Path) -> None:
    assert [slurm._may_start(tmp_path, "7", 2) for _ in range(4)] == [True, True, True, False]
    assert slurm._may_start(tmp_path, "8", 2)  # submitted again


@pytest.mark.parametrize("written", ["checkpoints/step-{}.pt", "events.jsonl"])
def test_progress_forgives_earlier_starts(tmp_path: Path, written: str) -> None:
    for number in range(6):
        assert slurm._may_start(tmp_path, "7", 0)
        path = tmp_path / written.format(f"{number:08d}")
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}" * (number + 1))
    assert slurm._may_start(tmp_path, "7", 0)
    assert not slurm._may_start(tmp_path, "7", 0)


def test_a_job_is_put_back_only_while_it_runs(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "_REQUEUED_IN_S", 0)
    path = programs / "scontrol"
    for state, requeued in (("CANCELLED", False), ("COMPLETING", False), ("PREEMPTED", False), ("RUNNING", True)):
        path.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/{state}\necho JobId=7 JobState={state} Reason=None\n')
        path.chmod(0o755)
        slurm._requeue("7")
        assert ("requeue 7" in (tmp_path / state).read_text()) == requeued


def test_a_task_of_an_array_whose_machine_fails_is_not_put_back(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen = {"stage": "sweep", "task_name": "x", "inputs": {}, "made_of": {}}
    runtime = tiny.runtime(launcher=launcher(sweep_tasks=2))
    config: Any = type("Config", (), {"runtime": runtime})
    monkeypatch.setattr(slurm, "read_frozen", lambda _: (frozen, config))
    monkeypatch.setattr(slurm, "_requeue", lambda job: None)
    for name, value in (("SLURM_ARRAY_JOB_ID", "7"), ("SLURM_ARRAY_TASK_ID", "1"), ("SLURM_JOB_ID", "8")):
        monkeypatch.setenv(name, value)
    write_status(tmp_path, Status(state="running"))
    for exit_status, expected in ((1, 1), (85, 85), (137, 85)):
        says(programs, "srun", "", status=exit_status)
        monkeypatch.setattr(slurm, "STOP_SIGNALS", ())
        assert slurm.main(tmp_path) == expected
