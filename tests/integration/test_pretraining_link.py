"""Two ranks in network namespaces: a link that fails ends both within `runtime.peer_timeout_s`, a bad one neither."""

import os
import re
import shutil
import subprocess

import pytest

import pretraining_processes as processes
from bertline.training.checkpoints import CheckpointFolder
from pretraining_inputs import pretrain_job, write_inputs

TIMEOUT_S = 8.0
CHANGES = {**processes.UNTIL_A_RANK_IS_LOST, "runtime__peer_timeout_s": TIMEOUT_S, "runtime__num_devices": 2}


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def namespaces():
    """Two network namespaces, joined by a link with the addresses 10.77.0.1 and 10.77.0.2."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("needs `ip` and root, to make network namespaces")
    names = [f"bertline{os.getpid()}-{side}" for side in range(2)]
    try:
        try:
            for name in names:
                ip("netns", "add", name)
            ip("link", "add", "veth0", "netns", names[0], "type", "veth", "peer", "name", "veth0", "netns", names[1])
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces cannot be made here: {error.stderr.strip()}")
        for side, name in enumerate(names):
            ip("-n", name, "addr", "add", f"10.77.0.{side + 1}/24", "dev", "veth0")
            for device in ("lo", "veth0"):
                ip("-n", name, "link", "set", device, "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def drop(name: str, share: str) -> None:
    """Loses a share of the packets that reach a namespace, such as `numgen random mod 100 < 5`; all if it is empty."""
    if shutil.which("nft") is None:
        pytest.skip("needs nft, to lose packets: apt-get install nftables")
    for rule in ("add table inet loss", "add chain inet loss in { type filter hook input priority 0; }"):
        subprocess.run(["ip", "netns", "exec", name, "nft", rule], check=True, capture_output=True, text=True)
    made = ["ip", "netns", "exec", name, "nft", f"add rule inet loss in iifname veth0 {share} counter drop"]
    done = subprocess.run(made, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"this kernel cannot lose packets so: {done.stderr.strip()}")


def num_lost(name: str) -> int:
    """Returns the number of packets that `drop` has lost."""
    listed = ["ip", "netns", "exec", name, "nft", "list", "table", "inet", "loss"]
    shown = subprocess.run(listed, check=True, capture_output=True, text=True).stdout
    return int(re.search(r"counter packets (\d+)", shown)[1])


def link_down(names: list[str]) -> None:
    ip("-n", names[0], "link", "set", "veth0", "down")


def all_lost(names: list[str]) -> None:
    for name in names:
        drop(name, "")


def start_ranks(folder, names, changes):
    """Starts a rank in each namespace, in one run folder."""
    shared = {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "10.77.0.1",
        "MASTER_PORT": "29531",
        "GLOO_SOCKET_IFNAME": "veth0",
    }
    return [
        processes.start(
            folder,
            folder / "run",
            changes,
            before=processes.in_namespace(name),
            environment={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank, name in enumerate(names)
    ]


@pytest.mark.parametrize("fails", [link_down, all_lost])
def test_a_link_that_fails_ends_both_ranks(tmp_path, namespaces, fails):
    write_inputs(tmp_path)
    ranks = start_ranks(tmp_path, namespaces, CHANGES)
    job = pretrain_job(tmp_path, tmp_path / "run", **CHANGES)
    checkpoints = CheckpointFolder(job.checkpoints_folder, keep=1)
    try:
        processes.wait_for(lambda: len(checkpoints.steps) > 1, ranks[0])
        fails(namespaces)
        took_s = processes.seconds_until_end(*ranks)
        printed = processes.output_of(job.run_folder).read_text()
        assert [rank.exitcode for rank in ranks] == [1, 1], printed
        assert took_s < TIMEOUT_S + 3, printed  # 3 s: both processes end
        said = " ".join(re.findall(r"errors\.PeerLostError: (.*)", printed))
        assert re.search(r"rank 1 on \S+ \(process \d+\) does not answer", said), said
        assert re.search(r"rank 0 on \S+ \(process \d+\) cannot be reached at 10\.77\.0\.1", said), said
        assert checkpoints.load_newest() is not None
    finally:
        processes.kill(*ranks)


def test_a_slow_link_that_loses_packets_ends_nothing(tmp_path, namespaces):
    write_inputs(tmp_path)
    for name in namespaces:
        limit = [
            "tc",
            "qdisc",
            "add",
            "dev",
            "veth0",
            "root",
            "tbf",
            "rate",
            "8mbit",
            "burst",
            "16k",
            "latency",
            "200ms",
        ]
        subprocess.run(["ip", "netns", "exec", name, *limit], check=True, capture_output=True, text=True)
        drop(name, "numgen random mod 100 < 3")
    changes = {**CHANGES, "pretrain__phases": [{"steps": 100, "max_length": 16, "global_batch_size": 8}]}
    ranks = start_ranks(tmp_path, namespaces, changes)
    try:
        for rank in ranks:
            rank.join(timeout=600)
        printed = processes.output_of(tmp_path / "run").read_text()
        assert [rank.exitcode for rank in ranks] == [0, 0], printed
        assert all(num_lost(name) > 0 for name in namespaces)
    finally:
        processes.kill(*ranks)
