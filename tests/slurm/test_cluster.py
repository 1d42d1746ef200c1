"""The test cluster itself: what tests of the launcher build on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

import found_processes
import node_networks
import slurm_cluster
from servers import wait_until
from slurm_cluster import CONTROLLER, SlurmCluster

# The step of one task counts; the batch shell and srun wait for it.
COUNTS_TERM = """srun --nodes=1 --ntasks=1 bash -c '
trap "date +%s.%N >> terms" TERM
touch counts
while true; do sleep 0.1; done'"""
OWNS_A_CLUSTER = """
import sys, time
from pathlib import Path
from slurm_cluster import Settings, SlurmCluster

with SlurmCluster(Path(sys.argv[1]), Settings(networks=True)) as cluster:
    cluster.wait_for(cluster.submit("trap '' TERM; srun sleep 600"), "RUNNING")
    print(cluster._short, cluster.networks._name, flush=True)
    time.sleep(6000)
"""


def test_a_cluster_leaves_nothing(new_cluster, tmp_path):
    cluster = new_cluster(kill_wait=1)
    cluster.wait_for(cluster.submit("trap '' TERM; sleep 600"), "RUNNING")
    assert len(cluster.processes()) > 3
    cluster.stop()
    assert cluster.processes() == []
    assert not cluster._short.exists()


def test_both_nodes_answer_srun_by_their_names(cluster):
    assert "node1" not in Path("/etc/hosts").read_text()
    names = cluster.ask("srun", "--nodes=2", "hostname").splitlines()
    assert sorted(names) == ["node1", "node2"]
    found = cluster.ask("srun", "--nodelist=node1", "getent", "hosts", "node2")
    assert found.split()[1] == "node2"


def test_a_job_ends_with_the_status_of_its_script(cluster):
    bad, good = cluster.submit("echo here; exit 3"), cluster.submit("true")
    assert cluster.wait_for(bad, "COMPLETED", "FAILED") == "FAILED"
    assert cluster.wait_for(good, "COMPLETED", "FAILED") == "COMPLETED"
    assert cluster.log_of(bad) == "here\n"
    assert cluster.state(999) == "FORGOTTEN"


def test_two_clusters_run_at_once(new_cluster):
    first, second = new_cluster(), new_cluster(gpus=2)
    assert first.ask("srun", "echo", "one") == "one"
    assert second.ask("srun", "--gpus-per-node=2", "printenv", "CUDA_VISIBLE_DEVICES") == "0,1"
    refused = subprocess.run(["srun", "--gpus-per-node=2", "true"], env=first.environment(), capture_output=True)
    assert refused.returncode != 0


def test_there_is_no_accounting_and_an_ended_job_is_soon_forgotten(new_cluster):
    cluster = new_cluster(forget_after_s=2)
    with pytest.raises(RuntimeError, match="accounting storage is disabled"):
        cluster.ask("sacct")
    job = cluster.submit("true")
    cluster.wait_for(job, "COMPLETED")
    assert cluster.wait_for(job, "FORGOTTEN", within_s=600) == "FORGOTTEN"


def test_a_job_that_gives_way_is_told_twice_and_requeued(new_cluster):
    cluster = new_cluster(grace_s=2, kill_wait=2)
    low = cluster.submit(COUNTS_TERM, "--nodes=2", "--exclusive", "--requeue", "--open-mode=append")
    wait_until((cluster.folder / "counts").exists)
    high = cluster.submit("true", "--nodes=2", "--exclusive", "--partition=urgent")
    assert cluster.wait_for(high, "COMPLETED") == "COMPLETED"
    told = [float(line) for line in (cluster.folder / "terms").read_text().split()]
    # At the beginning of the grace and at its end, when srun is told too and forwards it within milliseconds.
    assert len([at for before, at in pairwise([0.0, *told]) if at - before > 1]) >= 2
    cluster.wait_for(low, "RUNNING")
    assert re.search(r"Restarts=1\b", cluster.ask("scontrol", "show", "job", low))


@pytest.mark.parametrize("name", [CONTROLLER, "node1"])
def test_a_job_outlives_a_daemon_that_is_killed_and_started_again(cluster, name):
    job = cluster.submit("until test -e end; do sleep 0.1; done; echo done")
    cluster.wait_for(job, "RUNNING")
    time.sleep(6)  # see SlurmCluster.kill
    cluster.restart(name)
    (cluster.folder / "end").touch()
    assert cluster.wait_for(job, "COMPLETED", "FAILED", "NODE_FAIL") == "COMPLETED"
    assert cluster.log_of(job) == "done\n"
    cluster.wait_until_idle()


def test_one_node_can_have_a_small_disk(cluster, tmp_path):
    (tmp_path / "data").mkdir()
    cluster.own_disk("node1", tmp_path / "data", "1m")
    write = ["dd", "if=/dev/zero", f"of={tmp_path}/data/full", "bs=2M", "count=1"]
    with pytest.raises(RuntimeError, match="No space left on device"):
        cluster.ask("srun", "--nodelist=node1", *write)
    cluster.ask("srun", "--nodelist=node2", *write)
    assert (tmp_path / "data/full").stat().st_size == 2 * 1024 * 1024  # node2's disk is the machine's


def test_the_link_of_a_node_can_be_cut(new_cluster):
    cluster = new_cluster(networks=True, node_timeout_s=5)
    address = cluster.networks.address("node2")
    reach = ["srun", "--nodelist=node1", "bash", "-c", f"exec 3<>/dev/tcp/{address}/{cluster._ports['node2']}"]
    cluster.ask(*reach)
    job = cluster.submit("sleep 60", "--nodelist=node2", "--no-requeue")
    cluster.wait_for(job, "RUNNING")
    cluster.networks.cut("node2")
    assert cluster.wait_for(job, "NODE_FAIL", "COMPLETED") == "NODE_FAIL"
    cluster.networks.join("node2")
    cluster.wait_until_idle()


def test_a_time_limit_sends_the_signal_that_the_job_asks_for(cluster: SlurmCluster):
    job = cluster.submit("trap 'echo told; exit 7' USR1\nsleep 600 & wait", "--time=1", "--signal=B:USR1@55")
    assert cluster.wait_for(job, "FAILED", "TIMEOUT", within_s=600) == "FAILED"
    assert cluster.log_of(job).startswith("told\n")


def test_what_a_job_leaves_behind_is_found(cluster: SlurmCluster):
    before = set(cluster.processes())
    assert cluster.orphans() == []
    left = subprocess.Popen(["sleep", "60"], env=cluster.environment())
    try:
        assert set(cluster.processes()) == before | {left.pid}
        assert cluster.orphans() == [left.pid]
    finally:
        left.send_signal(signal.SIGKILL)
        left.wait()


def test_what_starts_while_a_cluster_is_stopped_is_ended_too(cluster: SlurmCluster, monkeypatch):
    started = [subprocess.Popen(["sleep", "60"], env=cluster.environment())]
    found = cluster.processes

    def one_starts_after_the_look() -> list[int]:
        before = found()
        if len(started) == 1:
            started.append(subprocess.Popen(["sleep", "60"], env=cluster.environment()))
        return before

    monkeypatch.setattr(cluster, "processes", one_starts_after_the_look)
    try:
        cluster.stop()
        assert [process.wait(600) for process in started] == [-signal.SIGKILL, -signal.SIGKILL]
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_what_cannot_be_ended_is_named(cluster: SlurmCluster, monkeypatch):
    ended = subprocess.Popen(["true"])  # nobody waits for it yet: signals do nothing to it
    monkeypatch.setattr(found_processes, "ENDED_S", 0.3)
    with (
        monkeypatch.context() as patched,
        pytest.raises(TimeoutError, match=rf"do not end in 0.3 s: {ended.pid} \(true\)"),
    ):
        patched.setattr(cluster, "processes", lambda: [ended.pid])
        cluster.stop()
    ended.wait()
    assert cluster.processes() == []


def test_a_cluster_ends_with_its_process_when_that_is_killed(tmp_path):
    if reason := slurm_cluster.why_not() or node_networks.why_not():
        pytest.skip(reason)
    command = [sys.executable, "-c", OWNS_A_CLUSTER, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(slurm_cluster.__file__).parent)}
    owner = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    short, bridge = owner.stdout.readline().split()
    variable = f"SLURM_CONF={tmp_path / 'slurm.conf'}"
    assert len(found_processes.having(variable)) > 4  # daemons, and the job that ignores TERM
    assert bridge in subprocess.check_output(["ip", "netns", "list"], text=True)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    end = time.monotonic() + 600
    while Path(short).exists():
        assert time.monotonic() < end, found_processes.having(variable)
        time.sleep(0.1)
    assert found_processes.having(variable) == []
    assert bridge not in subprocess.check_output(["ip", "netns", "list"], text=True)
