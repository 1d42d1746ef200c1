"""Jobs of Slurm without Slurm: what is asked for, what its answers mean, when a job has started often enough."""

from __future__ import annotations

import shlex
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import tiny
from bertline.foundation.errors import ConfigError, MachineError
from bertline.orchestration import worker
from bertline.orchestration.ownership import hold_lock
from bertline.orchestration.slurm import batch, client, commands
from bertline.orchestration.slurm.batch import progress_of
from bertline.orchestration.slurm.script import job_script, own_flags, srun_command
from bertline.training.config import RuntimeConfig
from bertline.training.launchers import SlurmLauncherConfig
from slurm_programs import launcher, says

WORK = "bertline.pretraining.run:run"


def runtime() -> RuntimeConfig:
    return tiny.runtime(num_nodes=2, num_devices=8)


def script(folder: Path, config: SlurmLauncherConfig, *, ranks: bool = True) -> list[str]:
    return job_script(folder / "run", WORK, runtime(), config, name="bertline-x", ranks=ranks).splitlines()


def asked(lines: list[str]) -> set[str]:
    return {line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")}


def test_a_pretraining_asks_for_its_nodes_and_devices(tmp_path: Path) -> None:
    config = launcher(account="physics", partition="gpu", time="4:00:00", memory="64G", cpus_per_task=6)
    found = asked(script(tmp_path, config))
    assert {"--nodes=2", "--ntasks-per-node=8", "--gpus-per-node=8", "--cpus-per-task=6"} <= found
    assert {"--account=physics", "--partition=gpu", "--time=4:00:00", "--mem=64G"} <= found
    assert {"--requeue", "--signal=USR1@120", "--dependency=singleton", "--open-mode=append"} <= found


def test_a_sweep_asks_for_one_task_that_has_all_devices_of_a_node(tmp_path: Path) -> None:
    found = asked(script(tmp_path, launcher(cpus_per_task=6, sweep_tasks=3), ranks=False))
    assert {"--nodes=1", "--ntasks-per-node=1", "--gpus-per-node=8", "--cpus-per-task=48", "--array=0-2"} <= found
    assert not any(flag.startswith("--dependency") for flag in found)  # its tasks have one name, and run at once
    command = srun_command(tmp_path, WORK, runtime(), launcher(cpus_per_task=6), ranks=False)
    assert {"--nodes=1", "--ntasks-per-node=1", "--cpus-per-task=48"} <= set(command)


def test_nothing_is_asked_for_that_was_left_to_the_cluster(tmp_path: Path) -> None:
    found = asked(script(tmp_path, launcher(gpus=False)))
    left = ("--account", "--partition", "--time", "--mem", "--cpus-per-task", "--gpus")
    assert not [flag for flag in found if flag.startswith(left)]


def test_setup_lines_run_before_the_work_and_flags_are_passed_on(tmp_path: Path) -> None:
    lines = script(tmp_path, launcher(setup=("module load cuda", "export A=1"), flags=("--qos=low", "-C a100")))
    assert lines.index("module load cuda") + 1 == lines.index("export A=1") == len(lines) - 2
    assert {"--qos=low", "-C a100"} <= asked(lines)
    assert lines[-1].startswith(f"exec {sys.executable} -m bertline.orchestration.slurm.batch ")


def test_the_container_stands_before_the_python_of_the_ranks(tmp_path: Path) -> None:
    config = launcher(container="apptainer exec --nv 'my image.sif'", python="/opt/python", srun_flags=("--mpi=none",))
    command = srun_command(tmp_path, WORK, runtime(), config, ranks=True)
    at = command.index("apptainer")
    assert command[at - 1 : at + 6] == ["--mpi=none", "apptainer", "exec", "--nv", "my image.sif", "/opt/python", "-m"]
    assert "/opt/python" in shlex.split(script(tmp_path, config)[-1])


def test_folders_with_spaces_stay_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "my runs"
    place.mkdir()
    monkeypatch.chdir(place)
    lines = script(Path("runs"), launcher())
    assert f"--chdir='{place}'" in asked(lines)
    bad = tmp_path / "100%"
    bad.mkdir()
    monkeypatch.chdir(bad)
    with pytest.raises(ConfigError, match=r"has a %"):
        script(Path("runs"), launcher())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"flags": ("--job-name=mine",)}, "--job-name"),
        ({"flags": ("qos=low",)}, "--qos=low"),
        ({"setup": ("a\nb",)}, "one line"),
        ({"flags": ("-Jmine",)}, "-Jmine"),
        ({"flags": ("-J mine",)}, "-J"),
        ({"flags": ("--job-name mine",)}, "--job-name"),
        ({"flags": ("--job=mine",)}, "--job"),
        ({"flags": ("--array=0-3",)}, "--array"),
        ({"flags": ("-o here",)}, "-o"),
        ({"time": "soon"}, "4:00:00"),
        ({"time": "3:00", "stop_before_s": 120}, r"at most half of time \('3:00': 90 seconds\), found 120"),
        ({"stop_before_s": 65536}, "at most 65535"),
        ({"sweep_tasks": 0}, "at least 1"),
        ({"max_requeues": -1}, "negative"),
        ({"cpus_per_task": 0}, "cpus_per_task"),
    ],
)
def test_a_wrong_launcher_is_refused_with_the_rule(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        launcher(**changes)


def test_the_running_job_of_a_name_is_found_before_a_waiting_one(programs: Path) -> None:
    says(programs, "squeue", "9|PENDING|Priority\n7|RUNNING|None\n8|PENDING|Resources")
    assert commands.job_named("x") == commands.Job(job_id="7", state="RUNNING", reason="None")
    says(programs, "squeue", "")
    assert commands.job_named("x") is None


def test_a_silent_controller_is_not_an_empty_queue(programs: Path) -> None:
    says(programs, "squeue", "", status=1, error="slurm_load_jobs error: Unable to contact slurm controller")
    with pytest.raises(commands.UnansweredError, match="Unable to contact"):
        commands.job_named("x")


def test_nodes_that_take_no_job_are_named_once(programs: Path) -> None:
    says(programs, "sinfo", "node2: down*\nnode5: drained\nnode2: down*")
    assert commands.nodes_down() == "node2: down*, node5: drained"
    says(programs, "sinfo", "", status=1, error="Unable to contact slurm controller")
    assert commands.nodes_down() == ""


def test_without_accounting_the_end_of_a_forgotten_job_is_unknown(programs: Path) -> None:
    says(programs, "scontrol", "", status=1, error="slurm_load_jobs error: Invalid job id specified")
    assert commands.end_of("7") == ""
    says(programs, "sacct", "Slurm accounting storage is disabled", status=1)
    assert commands.end_of("7") == ""
    says(programs, "sacct", "CANCELLED by 0")
    assert commands.end_of("7") == "CANCELLED by 0"


def test_the_controllers_memory_comes_before_accounting(programs: Path) -> None:
    says(programs, "scontrol", "JobId=7 JobName=x JobState=NODE_FAIL Reason=NodeDown Dependency=(null)")
    assert commands.end_of("7") == "NODE_FAIL, NodeDown"
    assert commands.state_of("7") == "NODE_FAIL"


def test_a_submission_whose_answer_was_lost_is_found_in_the_queue(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(programs, "sbatch", "", status=1, error="Batch job submission failed: Socket timed out on send/recv operation")
    says(programs, "squeue", "7|PENDING|Priority")
    assert submitted(tmp_path) == "7"
    monkeypatch.setattr(commands, "_LOST_ANSWER_S", 0.1)
    monkeypatch.setattr(commands.time, "sleep", lambda _: None)
    says(programs, "squeue", "", status=1, error="Unable to contact slurm controller")
    with pytest.raises(MachineError, match="run the same command again, which looks for the job first"):
        submitted(tmp_path)


@pytest.mark.parametrize("refusal", ["invalid account", "no such project, contact help@example.org"])
def test_a_refused_submission_is_not_looked_for(programs: Path, tmp_path: Path, refusal: str) -> None:
    says(programs, "sbatch", "", status=1, error=f"sbatch: error: {refusal}")
    says(programs, "squeue", "7|PENDING|Priority")  # what would be found
    with pytest.raises(MachineError, match=f"did not take the job: {refusal}. The job script"):
        submitted(tmp_path)


def submitted(folder: Path) -> str:
    with (folder / "lock").open("w") as lock:
        return commands.submit(folder / "job.sh", ["--job-name=x"], "x", held=lock.fileno())


def test_what_finds_the_job_again_stands_on_the_command_line(programs: Path, tmp_path: Path) -> None:
    # There it comes before what SBATCH_JOB_NAME and its like say.
    path = programs / "sbatch"
    path.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/given\necho 5\n')
    path.chmod(0o755)
    assert submitted(tmp_path) == "5"
    assert "--job-name=x" in (tmp_path / "given").read_text()
    flags = own_flags(tmp_path / "my runs", launcher(), name="bertline-x", ranks=True, quoted=False)
    assert f"--output={tmp_path}/my runs/log" in flags
    assert {"--job-name=bertline-x", "--requeue", "--dependency=singleton", "--signal=USR1@120"} <= set(flags)


def test_a_machine_without_slurm_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match=r"no sbatch, squeue, scontrol.*login node"):
        commands.require_commands()


def test_sbatch_holds_the_lock_of_the_submission(programs: Path, tmp_path: Path) -> None:
    path = programs / "sbatch"
    path.write_text(f"#!/bin/sh\nls -l /proc/$$/fd > {tmp_path}/fds\necho 5\n")
    path.chmod(0o755)
    submitted(tmp_path)
    assert str(tmp_path / "lock") in (tmp_path / "fds").read_text()


def test_a_job_without_progress_starts_so_often_and_no_more(tmp_path: Path) -> None:
    starts = [batch._may_start(tmp_path, "7", 2) for _ in range(4)]
    assert starts == [True, True, True, False]
    assert batch._may_start(tmp_path, "8", 2)  # submitted again


def test_progress_forgives_earlier_starts(tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    for step in range(6):
        assert batch._may_start(tmp_path, "7", 0)
        (checkpoints / f"step-{step:08d}.pt").touch()
    assert batch._may_start(tmp_path, "7", 0)
    assert not batch._may_start(tmp_path, "7", 0)


@pytest.mark.parametrize("written", ["checkpoints/step-00000010.pt", "events.jsonl", "seeds/encoder-0/outcome.json"])
def test_whatever_is_kept_is_progress(tmp_path: Path, written: str) -> None:
    before = progress_of(tmp_path)
    (tmp_path / written).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / written).write_text("{}")
    assert progress_of(tmp_path) != before


def test_a_job_is_put_back_only_while_it_runs(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "_REQUEUED_IN_S", 0)
    asked_for: list[str] = []
    monkeypatch.setattr(commands, "requeue", lambda job: asked_for.append(job) or "")
    for state in ("CANCELLED", "COMPLETING", "PREEMPTED"):
        says(programs, "scontrol", f"JobId=7 JobState={state} Reason=None")
        assert batch._requeued("7") == 85
    says(programs, "scontrol", "", status=1, error="slurm_load_jobs error: Invalid job id specified")
    assert batch._requeued("7") == 85
    assert asked_for == []
    says(programs, "scontrol", "JobId=7 JobState=RUNNING Reason=None")
    assert batch._requeued("7") == 85
    assert asked_for == ["7"]


def test_a_controller_that_is_away_is_waited_for_before_a_job_is_put_back(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_REQUEUED_IN_S", 0)
    monkeypatch.setattr(batch, "_LOOK_S", 0)
    answers = iter(["away", "away", "RUNNING"])

    def state(job: str) -> str:
        if (answer := next(answers)) == "away":
            raise commands.UnansweredError("Unable to contact slurm controller")
        return answer

    put_back: list[str] = []
    monkeypatch.setattr(commands, "state_of", state)
    monkeypatch.setattr(commands, "requeue", lambda job: put_back.append(job) or "")
    assert batch._requeued("7") == 85
    assert put_back == ["7"]


def test_a_silent_controller_is_not_a_job_that_it_forgot(programs: Path) -> None:
    says(programs, "scontrol", "", status=1, error="slurm_load_jobs error: Unable to contact slurm controller")
    with pytest.raises(commands.UnansweredError, match="Unable to contact"):
        commands.state_of("7")
    with pytest.raises(commands.UnansweredError, match="Unable to contact"):
        commands.requeue("7")
    says(programs, "scontrol", "", status=1, error="Requeue is not allowed, contact help@example.org")
    assert commands.requeue("7") == "Requeue is not allowed, contact help@example.org"


def test_the_name_of_a_job_is_chosen_once(tmp_path: Path) -> None:
    together = threading.Barrier(8)
    names: list[str] = []

    def choose() -> None:
        together.wait()
        names.append(client._first_note(tmp_path).name)

    threads = [threading.Thread(target=choose) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(names) == 8
    assert len(set(names)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["job.json"]


def test_an_error_on_one_machine_of_a_sweep_is_a_message_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> bool:
        raise MachineError("the studies cannot be read")

    monkeypatch.setattr(worker, "_frozen", lambda _: ({}, None))
    monkeypatch.setattr(worker, "_joined", fails)
    with hold_lock(tmp_path):  # as the leader does
        assert worker._lead_or_join(tmp_path, WORK) == 1
    assert capsys.readouterr().err == "error: the studies cannot be read\n"


def test_the_job_script_is_a_script_of_bash(tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    path.write_text("\n".join(script(tmp_path, launcher(setup=("if true; then echo yes; fi",)))))
    subprocess.run(["bash", "-n", str(path)], check=True)


@pytest.mark.parametrize(("num_devices", "told"), [(8, False), (4, True)])
def test_who_attaches_with_other_devices_is_told(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], num_devices: int, told: bool
) -> None:
    says(programs, "sbatch", "7")
    says(programs, "squeue", "")
    client._submitted(tmp_path, WORK, runtime(), launcher(), ranks=True)
    says(programs, "squeue", "7|RUNNING|None")
    client._submitted(tmp_path, WORK, tiny.runtime(num_nodes=2, num_devices=num_devices), launcher(), ranks=True)
    said = "job 7 was submitted for 2 node(s) of 8 device(s), this command asks for 2 of 4"
    assert (said in capsys.readouterr().err) == told
