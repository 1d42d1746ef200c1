"""`runtime.launcher: slurm` on a cluster with real daemons: jobs that are submitted once, followed, resumed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex

import pytest

import once
import slurm_workspace
import warm_python
from slurm_cluster import CONTROLLER, Settings, SlurmCluster
from slurm_workspace import Workspace

STEPS = 1200  # a client has a few seconds to attach, on a fast machine too
TRAINING = (
    f"pretrain.phases=[{{steps: {STEPS}, max_length: 32, global_batch_size: 16}}]",
    "pretrain.validate_every_steps=200",
    "pretrain.checkpoint_every_steps=50",
)
SHORT = ("pretrain.max_steps=20", "pretrain.checkpoint_every_steps=10")
DVC = ("dvc", "repro", "pretrain")
NewWorkspace = Callable[..., Workspace]


@pytest.fixture
def new_workspace(template: Path, tmp_path: Path, new_cluster: Callable[..., SlurmCluster]) -> NewWorkspace:
    """`new_workspace(*overrides, warm=False, **settings_of_the_cluster)`.

    `warm`: nothing depends on how its commands and the processes of its jobs start and end.
    """

    def new(*overrides: str, warm: bool = False, **settings: object) -> Workspace:
        if warm:
            overrides = (*overrides, warm_jobs())
        workspace = Workspace.copied(template, tmp_path / "workspace", new_cluster(**settings), *overrides)
        if warm:
            workspace.warm()
        return workspace

    return new


@pytest.fixture(scope="session")
def undisturbed(template: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Digest of the weights of the training without any disturbance."""

    def train(digest: Path) -> None:
        folder = tmp_path_factory.mktemp("undisturbed")
        with SlurmCluster(folder / "slurm", Settings()) as cluster:
            workspace = Workspace.copied(template, folder / "workspace", cluster, *TRAINING)
            workspace.finish()
            digest.write_text(workspace.weights)

    return once.made(tmp_path_factory, "undisturbed-weights", train).read_text()


def warm_jobs() -> str:
    """The override by which the processes of a job are warm, whoever submits it."""
    return f"runtime.launcher.python={warm_python.programs() / 'python'}"


def begun(workspace: Workspace) -> subprocess.Popen[bytes]:
    """Start a training, and return its client once there is a checkpoint."""
    client = workspace.start()
    workspace.until_step(50)
    return client


def test_dvc_repro_submits_once_and_takes_the_finished_result(new_workspace: NewWorkspace) -> None:
    workspace = new_workspace(*SHORT, warm=True)
    said = workspace.finish(*DVC)
    assert "submitted job 1" in said
    assert "step 20 of 20" in said
    assert (workspace.folder / "artifacts/pretrain/model.safetensors").exists()
    assert "Stage 'pretrain' didn't change" in workspace.finish(*DVC)
    (workspace.folder / "artifacts/metrics/pretrain.json").unlink()  # DVC runs the stage again
    assert "is finished already; taking its result" in workspace.finish(*DVC, "--force", "--single-item")
    assert workspace.accepted == ["1"]
    workspace.cluster.wait_until_idle()


def test_a_command_repeated_while_sbatch_answers_leaves_the_work_to_one_job(new_workspace: NewWorkspace) -> None:
    workspace = new_workspace(*SHORT, warm=True)
    folder = workspace.folder
    (folder / "wait.before").touch()
    first = workspace.start()
    workspace.until((folder / "sbatch.begun").exists)
    first.kill()
    first.wait()
    second = workspace.start("python", "pipelines/pretrain.py", output="again.log")
    (folder / "wait.before").unlink()
    assert second.wait(slurm_workspace.WITHIN_S) == 0
    workspace.cluster.wait_until_idle()
    assert 1 <= len(workspace.accepted) <= 2  # of one name, of which Slurm runs one after the other
    assert workspace.log.count("step 20 of 20") == 1


def test_another_shell_attaches_and_completes_the_stage(new_workspace: NewWorkspace, undisturbed: str) -> None:
    workspace = new_workspace(*TRAINING, warm_jobs())
    first = workspace.start(*DVC)
    workspace.until_step(50)
    os.killpg(first.pid, signal.SIGHUP)  # the connection dies
    first.wait()
    second = workspace.start(output="second.log")  # by hand, while DVC attaches too
    assert "attached to job 1" in workspace.finish(*DVC)
    assert second.wait(600) == 0
    assert workspace.said(f"pretraining: step {STEPS:,} of {STEPS:,}, ", output="second.log")
    assert workspace.accepted == ["1"]
    assert workspace.weights == undisturbed
    assert (workspace.folder / "artifacts/pretrain/model.safetensors").exists()


def test_a_signal_to_the_client_leaves_the_job_running(new_workspace: NewWorkspace) -> None:
    workspace = new_workspace(*TRAINING, warm_jobs())
    for number, said in ((signal.SIGINT, "submitted job 1"), (signal.SIGTERM, "attached to job 1")):
        output = f"{number}.log"
        client = workspace.start(output=output)
        workspace.until(lambda said=said, output=output: workspace.said(said, output=output))
        workspace.cluster.wait_for(1, "RUNNING")
        os.kill(client.pid, number)
        assert client.wait(600) == 128 + number
        assert workspace.said("job 1 continues without this command", output=output)
    assert workspace.cluster.state(1) == "RUNNING"


def test_clients_at_once_follow_one_job(new_workspace: NewWorkspace) -> None:
    workspace = new_workspace(*SHORT, "runtime.num_nodes=1", "runtime.launcher.flags=[--hold]", warm=True)
    commands = {"0.log": (), "1.log": ("python", "pipelines/pretrain.py"), "2.log": DVC, "3.log": DVC}
    clients = {output: workspace.start(*command, output=output) for output, command in commands.items()}
    # Of two `dvc repro` in one clone, DVC itself lets one run.
    refused = workspace.until(lambda: next((one for one in ("2.log", "3.log") if clients[one].poll()), None))
    assert re.search(r"is busy|acquire lock", (workspace.folder / refused).read_text())
    others = [output for output in commands if output != refused]
    for output in others:
        workspace.until(lambda output=output: workspace.said("job 1 waits: JobHeldUser", output=output))
    workspace.cluster.ask("scontrol", "release", "1")
    assert [clients[output].wait(slurm_workspace.WITHIN_S) for output in others] == [0, 0, 0]
    assert workspace.accepted == ["1"]
    said = "".join((workspace.folder / output).read_text() for output in others)
    assert said.count("submitted job 1") + said.count("attached to job 1") == 3
    assert "Stage 'pretrain' didn't change" in workspace.finish(*DVC)


def test_a_pre_empted_job_resumes_at_the_very_step(new_workspace: NewWorkspace, undisturbed: str) -> None:
    # The processes that make batches get the signal, too.
    workspace = new_workspace(*TRAINING, "runtime.num_workers=2", grace_s=30)
    client = begun(workspace)
    urgent = workspace.cluster.submit("sleep 1", "--nodes=2", "--exclusive", "--partition=urgent")
    workspace.cluster.wait_for(urgent, "COMPLETED", within_s=600)
    assert client.wait(slurm_workspace.WITHIN_S) == 0
    resumed_where_it_stopped(workspace)
    assert workspace.weights == undisturbed
    assert workspace.accepted == ["1"]


def test_a_job_at_its_time_limit_is_requeued_and_resumes_at_the_very_step(new_workspace: NewWorkspace) -> None:
    # Slurm counts limits in minutes, and sends the signal up to a minute early.
    limits = ("runtime.launcher.time='1'", "runtime.launcher.stop_before_s=10")
    endless = "pretrain.phases=[{steps: 100000, max_length: 32, global_batch_size: 16}]"
    workspace = new_workspace(*TRAINING, endless, *limits)
    workspace.start()
    found = workspace.until(lambda: re.search(r"resumes after step ([\d,]+)", workspace.log), within_s=600)
    resumed_where_it_stopped(workspace)
    workspace.until_step(int(found[1].replace(",", "")) + 50)  # that others end is tested above


def resumed_where_it_stopped(workspace: Workspace) -> None:
    """Checks that the job was started again, each time after the step that it had saved last."""
    saved = re.findall(r"stopped and saved after step ([\d,]+)", workspace.log)
    assert len(workspace.starts) >= 2
    assert [start["progress"].split("/")[0] for start in workspace.starts[1:]] == [
        f"step-{int(step.replace(',', '')):08d}" for step in saved
    ]
    assert saved == re.findall(r"resumes after step ([\d,]+)", workspace.log)


def test_daemons_that_are_killed_and_started_again_lose_nothing(new_workspace: NewWorkspace, undisturbed: str) -> None:
    workspace = new_workspace(*TRAINING)
    client = workspace.start()
    for step, name in ((50, CONTROLLER), (100, "node1"), (150, "node2")):
        workspace.until_step(step)
        workspace.cluster.kill(name)
        time.sleep(2)  # the client asks meanwhile
        workspace.cluster.start(name)
    assert client.wait(slurm_workspace.WITHIN_S) == 0
    assert workspace.weights == undisturbed
    assert workspace.accepted == ["1"]
    assert len(workspace.starts) == 1


def test_a_killed_rank_is_noticed_and_the_job_resumes(new_workspace: NewWorkspace, undisturbed: str) -> None:
    workspace = new_workspace(*TRAINING)
    client = begun(workspace)
    os.kill(workspace.ranks[-1], signal.SIGKILL)
    assert client.wait(slurm_workspace.WITHIN_S) == 0
    assert len(workspace.starts) == 2
    assert workspace.weights == undisturbed


def test_the_node_that_is_left_ends_the_training_as_both_would_have(new_workspace, undisturbed) -> None:
    workspace = without(new_workspace(*TRAINING, node_timeout_s=5), "node1")
    workspace.cluster.ask("scancel", "1")
    workspace.finish(sys.executable, "pipelines/pretrain.py", "runtime.num_nodes=1", "runtime.num_devices=2")
    assert workspace.accepted == ["1", "2"]
    assert workspace.weights == undisturbed


def without(workspace: Workspace, node: str) -> Workspace:
    """Loses a node of a training in progress for good; its job is back in the queue. The batch script is on node1."""
    client = begun(workspace)
    workspace.cluster.lose(node)
    workspace.until(lambda: workspace.said("job 1 waits: "))
    os.kill(client.pid, signal.SIGINT)
    assert client.wait(600) == 130
    return workspace


def test_secrets_of_the_environment_are_in_no_file_of_the_job(new_workspace, monkeypatch) -> None:
    secret = f"planted-{token_hex(16)}"
    names = ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "PGPASSWORD")
    for name in names:
        monkeypatch.setenv(name, secret)
    monkeypatch.setenv("BERTLINE_STUDIES_URL", f"postgresql://ada:{secret}@127.0.0.1/studies")
    seen = "runtime.launcher.setup=['test -n \"$MLFLOW_TRACKING_TOKEN\" && echo the job has it']"
    workspace = new_workspace(*SHORT, seen, warm=True)
    workspace.finish()
    assert "the job has it" in workspace.log
    assert {"job.sh", "log", "starts.jsonl", "config.yaml"} <= {path.name for path in workspace.run.iterdir()}
    kept = [*workspace.folder.rglob("*"), *(workspace.cluster.folder / "log").iterdir()]
    # What sbatch keeps of the environment is Slurm's own, in files of the controller that root alone may read.
    kept += (workspace.cluster.folder / "state").rglob("script")
    assert [path for path in kept if path.is_file() and secret.encode() in path.read_bytes()] == []


def test_a_full_disk_on_one_node_fails_the_job_and_loses_nothing(new_workspace: NewWorkspace, undisturbed: str) -> None:
    workspace = new_workspace(*TRAINING)
    client = workspace.start()
    checkpoints = workspace.until(lambda: next(workspace.run.glob("checkpoints"), None))
    workspace.until_step(50)
    cluster = workspace.cluster
    cluster.own_disk("node1", checkpoints, "100k")
    for pid in workspace.ranks:
        subprocess.run(["nsenter", "--target", str(pid), "--mount", "true"], check=True)
    assert client.wait(slurm_workspace.WITHIN_S) == 1
    assert workspace.said("No space left on device")
    cluster.inside("node1", "umount", str(checkpoints))
    workspace.finish()
    assert workspace.weights == undisturbed


def test_a_cancelled_job_stays_cancelled_and_is_submitted_again_on_request(new_workspace, undisturbed) -> None:
    workspace = new_workspace(*TRAINING)
    client = begun(workspace)
    workspace.cluster.ask("scancel", "1")
    assert client.wait(600) == 1
    assert workspace.said("job 1 ended before its work was done (CANCELLED")
    assert workspace.cluster.wait_for(1, "CANCELLED") == "CANCELLED"
    assert "submitted job 2" in workspace.finish()
    assert workspace.weights == undisturbed
