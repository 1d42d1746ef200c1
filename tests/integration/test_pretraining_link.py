"""Two ranks in network namespaces whose link goes down: both end within `runtime.peer_timeout_s`, and say why."""

import os
import re
import shutil
import subprocess
import time

import pytest

import pretraining_processes as processes
from bertline.training.checkpoints import CheckpointFolder
from pretraining_inputs import pretrain_job, write_inputs

TIMEOUT_S = 6.0
CHANGES = {
    "pretrain__phases": [{"steps": 4000, "max_length": 16, "global_batch_size": 8}],
    "pretrain__checkpoint_every_steps": 10,
    "pretrain__validate_every_steps": 4000,
    "pretrain__mask_predictions": {"every_steps": 4000, "num_guesses": 1, "sentences": []},
    "runtime__peer_timeout_s": TIMEOUT_S,
    "runtime__num_devices": 2,
}


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


def test_a_link_that_goes_down_ends_both_ranks(tmp_path, namespaces):
    write_inputs(tmp_path)
    folders = [tmp_path / "run", tmp_path / "run"]
    shared = {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "10.77.0.1",
        "MASTER_PORT": "29531",
        "GLOO_SOCKET_IFNAME": "veth0",
    }
    ranks = [
        processes.start(
            tmp_path,
            folder,
            CHANGES,
            before=processes.in_namespace(namespaces[rank]),
            environment={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank, folder in enumerate(folders)
    ]
    job = pretrain_job(tmp_path, folders[0], **CHANGES)
    checkpoints = CheckpointFolder(job.checkpoints_folder, keep=1)
    try:
        processes.wait_for(lambda: len(checkpoints.steps) > 1, ranks[0])
        ip("-n", namespaces[0], "link", "set", "veth0", "down")
        begun = time.monotonic()
        for rank in ranks:
            rank.join(timeout=60)
        took_s = time.monotonic() - begun
        printed = processes.output_of(job.run_folder).read_text()
        assert [rank.exitcode for rank in ranks] == [1, 1], printed
        assert took_s < TIMEOUT_S + 3, printed  # 3 s: both processes end
        said = " ".join(re.findall(r"errors\.PeerLostError: (.*)", printed))
        assert re.search(r"rank 1 on \S+ \(process \d+\) has given no sign of life for \d+ s", said)
        assert re.search(r"rank 0 on \S+ \(process \d+\) (cannot be reached|has given no sign of life)", said)
        assert checkpoints.load_newest() is not None
    finally:
        processes.kill(*ranks)
