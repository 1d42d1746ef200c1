"""What a person reads when a worker cannot write: the reason, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import tiny
from bertline.foundation.errors import BertlineError
from bertline.orchestration import launching
from bertline.orchestration.launching import run_in_worker
from bertline.orchestration.stopping import COULD_NOT_WRITE

ROOT = Path(__file__).resolve().parents[3]
WORK = "bertline.sweep.run:run"


FAILS = """
import sys
from pathlib import Path
from bertline.foundation.errors import MachineError
from bertline.orchestration import worker, status
def full(folder, status):
    raise MachineError("status.json cannot be written: No space left on device")
def work(function, frozen, config, folder):
    {work}
worker.write_status, worker._work, worker._frozen = ({write}), work, lambda folder: ({{}}, None)
code = worker.main(Path(sys.argv[1]), "bertline.sweep.run:run")
from bertline.orchestration.stopping import give_up_streams
give_up_streams()
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("work", "write", "said", "log_is_full"),
    [
        ('raise MachineError("step-8.pt cannot be written")', "full", "status.json cannot be written", False),
        ('return {"a": 1.0}', "full", "status.json cannot be written", True),
        (
            'raise MachineError("step-8.pt cannot be written: No space left on device")',
            'lambda folder, now: status.write_status(folder, now) if now.state == "running" else full(folder, now)',
            "step-8.pt cannot be written: No space left on device",
            True,
        ),
    ],
)
def test_on_a_full_disk_the_reason_reaches_standard_error_and_the_exit_status(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    work: str,
    write: str,
    said: str,
    log_is_full: bool,
) -> None:
    script = FAILS.format(work=work, write=write)
    if log_is_full:  # every write fails with ENOSPC
        script = "import os\nfor stream in (1, 2):\n    os.dup2(os.open('/dev/full', os.O_WRONLY), stream)\n" + script
    monkeypatch.setattr(launching, "_command", lambda folder, *_: [sys.executable, "-c", script, str(folder)])
    with pytest.raises(BertlineError, match=r"could not write how; its last words are above\. Free space"):
        run_in_worker(tmp_path, WORK, tiny.runtime(), several_devices=False)
    assert said in capfd.readouterr().err


def test_a_worker_on_a_full_disk_ends_with_a_status_of_its_own(tmp_path: Path) -> None:
    """The real worker; /dev/full takes the log, a read-only limit of zero bytes takes every file."""
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"stage": "none", "config": {}}))
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from bertline.orchestration import worker\n"
        "from bertline.orchestration.stopping import give_up_streams\n"
        "worker._frozen = lambda folder: ({}, None)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "from pathlib import Path\n"
        f"code = worker.main(Path({str(tmp_path)!r}), {WORK!r}); give_up_streams(); sys.exit(code)"
    )
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdout=full,
            stderr=full,
        )
    assert done.returncode == COULD_NOT_WRITE
