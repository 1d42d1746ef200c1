"""torchrun around ranks that need a while to save, under the signals of a scheduler."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

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
end = time.monotonic() + 2
while time.monotonic() < end:
    time.sleep(0.02)
(folder / "saved").write_text(str([int(number) for number in received]))
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
    while not (tmp_path / "ready").exists():
        assert torchrun.poll() is None
        time.sleep(0.02)
    for number in numbers:
        torchrun.send_signal(number)
        time.sleep(0.7)
    torchrun.wait(timeout=30)
    assert (tmp_path / "saved").read_text() == str([int(numbers[0])])
