"""torchrun around ranks that need a while to save, under the signals of a scheduler, and that meet."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from found_processes import has_pending
from servers import wait_until

RANK = """
import sys, time
from pathlib import Path
from bertline.foundation.signals import receive_signals
received = []
receive_signals(lambda number, frame: received.append(number))
folder = Path(sys.argv[1])
(folder / "ready").touch()
while not received:
    time.sleep(0.02)
(folder / "asked").touch()
while not (folder / "may_save").exists():
    time.sleep(0.02)
time.sleep(0.5)  # saves; a torchrun that does not wait for it kills it
(folder / "saved").write_text(str([int(number) for number in received]))
"""

MEETS = """
import os, sys
import torch
from bertline.training.devices import Machine, Ranks, sum_over_ranks
from bertline.training.process_group import process_group

rank, restart = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"]
cpu = torch.device("cpu")
machine = Machine(device=cpu, precision="fp32", compile=False, ranks=Ranks(rank=rank, world_size=2))
with process_group(machine, 600.0):
    total = sum_over_ranks([10.0**rank], cpu)
    if "fails" in sys.argv and restart == "0" and rank == 1:
        os._exit(9)
store = os.environ["TORCHELASTIC_USE_AGENT_STORE"]
print(f"rank {rank} start {restart} agent's store {store} sum {list(map(float, total))}", flush=True)
"""


@pytest.mark.parametrize("numbers", [[signal.SIGTERM, signal.SIGTERM], [signal.SIGUSR1, signal.SIGTERM]])
def test_repeated_requests_to_stop_leave_the_ranks_the_time_to_save(
    tmp_path: Path, numbers: list[signal.Signals]
) -> None:
    (tmp_path / "rank.py").write_text(RANK)
    torchrun = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "bertline.orchestration.torchrun",
            "--standalone",
            str(tmp_path / "rank.py"),
            str(tmp_path),
        ],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    first, second = numbers
    wait_until((tmp_path / "ready").exists, every_s=0.02)
    torchrun.send_signal(first)
    wait_until((tmp_path / "asked").exists, every_s=0.02)
    torchrun.send_signal(second)
    wait_until(lambda: not has_pending(torchrun.pid, second), every_s=0.02)
    (tmp_path / "may_save").touch()
    torchrun.wait(timeout=600)
    assert (tmp_path / "saved").read_text() == str([int(numbers[0])])


@pytest.mark.parametrize(("arguments", "start"), [([], 0), (["fails"], 1)], ids=["at once", "after a restart"])
def test_ranks_form_a_process_group_over_the_store_of_torchrun_also_after_a_restart(
    tmp_path: Path, arguments: list[str], start: int
) -> None:
    program = tmp_path / "rank.py"
    program.write_text(MEETS)
    command = [sys.executable, "-m", "bertline.orchestration.torchrun", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, "--max-restarts=1", str(program), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    met = [f"rank {rank} start {start} agent's store True sum [11.0]" for rank in (0, 1)]
    # Two ranks may write into one line.
    said = re.findall(rf"rank \d start {start} agent's store \w+ sum \[[\d.]+\]", done.stdout)
    assert sorted(said) == met
