"""Starting, attaching to and resuming a worker, with small scripts in the worker's place."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import tiny
from bertline.foundation.errors import BertlineError
from bertline.foundation.files import folder_written_atomically
from bertline.orchestration import launching, worker
from bertline.orchestration.launching import run_in_worker
from bertline.orchestration.ownership import is_locked
from bertline.orchestration.status import read_status
from bertline.training.nodes import Node

RUNTIME = tiny.runtime()
WORK = "bertline.sweep.run:run"  # the scripts in the worker's place do other work
PREAMBLE = """
import os, sys, time
from pathlib import Path
from bertline.orchestration.ownership import hold_lock
from bertline.orchestration.status import Status, write_status
folder = Path(sys.argv[1])
"""
FINISHES = (
    PREAMBLE
    + """
with hold_lock(folder) as held:
    if not held:
        sys.exit(75)
    write_status(folder, Status(state="running", pid=os.getpid()))
    print("working", flush=True)
    (folder / "starts").open("a").write("x")
    time.sleep(float(sys.argv[2]))
    (folder / "result").mkdir(exist_ok=True)
    write_status(folder, Status(state="finished", metrics={"val/mlm_loss": 4.0}))
"""
)
FAILS = PREAMBLE + 'write_status(folder, Status(state="failed", message="the text is empty"))\nsys.exit(1)\n'


STOPS_WHEN_ASKED = (
    PREAMBLE
    + """
import signal
signals = []
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: signals.append(signal.Signals(number)))
with hold_lock(folder) as held:
    write_status(folder, Status(state="running", pid=os.getpid()))
    (folder / "ready").touch()
    while not signals:
        time.sleep(0.02)
    time.sleep(0.5)
    write_status(folder, Status(state="stopped", message=f"stopped after {len(signals)} {signals[0].name}"))
"""
)
RECIPE = """
import signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as a terminal starts it; under nohup it would be ignored
from pathlib import Path
from types import SimpleNamespace
from bertline.foundation.errors import BertlineError, WorkContinues
from bertline.orchestration import launching
launching._command = lambda folder, *_: [sys.executable, "-c", sys.argv[2], str(folder)]
from bertline.orchestration.stopping import end_as_stopped, stop_on_signals
stop_on_signals()
try:
    local = SimpleNamespace(launcher=None)
    launching.run_in_worker(Path(sys.argv[1]), "bertline.none:none", local, several_devices=False)
except BertlineError as error:
    print(error)
except KeyboardInterrupt as error:
    if isinstance(error, WorkContinues):
        print("its record does not end")
    end_as_stopped(error)
"""


def use(monkeypatch: pytest.MonkeyPatch, script: str, *arguments: str) -> None:
    command = lambda folder, *_: [sys.executable, "-c", script, str(folder), *arguments]  # noqa: E731
    monkeypatch.setattr(launching, "_command", command)


def test_the_workers_lines_are_shown_and_its_figures_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, FINISHES, "0")
    assert run_in_worker(tmp_path, WORK, RUNTIME, several_devices=False) == {"val/mlm_loss": 4.0}
    assert "working" in capfd.readouterr().out
    assert "working" in (tmp_path / "log").read_text()


def test_a_finished_run_is_not_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FINISHES, "0")
    for _ in range(2):
        assert run_in_worker(tmp_path, WORK, RUNTIME, several_devices=False) == {"val/mlm_loss": 4.0}
    assert (tmp_path / "starts").read_text() == "x"


def damaged(result: Path, how: str) -> None:
    if how == "deleted":
        shutil.rmtree(result)
    else:
        weights = bytearray((result / "weights").read_bytes())
        weights[100] ^= 1
        (result / "weights").write_bytes(weights)


@pytest.mark.parametrize("how", ["deleted", "flipped"])
def test_a_finished_run_whose_result_is_not_what_was_written_works_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], how: str
) -> None:
    use(monkeypatch, "import sys; import test_launching as t; sys.exit(t.work(sys.argv[1]))")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
    for _ in range(2):
        assert run_in_worker(tmp_path, WORK, RUNTIME, several_devices=False) == {"loss": 4.0}
        assert (tmp_path / "starts").read_text() == "x"
    damaged(tmp_path / "result", how)
    assert run_in_worker(tmp_path, WORK, RUNTIME, several_devices=False) == {"loss": 4.0}
    assert (tmp_path / "result/weights").read_bytes() == bytes(1000)
    assert (tmp_path / "starts").read_text() == "xx"
    assert "he work is done again" in capfd.readouterr().err


def work(folder: str) -> int:
    """The worker, with a result of 1,000 zeros."""

    def write(_: str, __: object, ___: object, run: Path) -> dict[str, float]:
        (run / "starts").open("a").write("x")
        with folder_written_atomically(run / "result") as result:
            (result / "weights").write_bytes(bytes(1000))
        return {"loss": 4.0}

    worker._frozen = lambda _: ({"stage": "pretrain"}, SimpleNamespace(runtime=RUNTIME))  # type: ignore[assignment,return-value]
    worker._work = write  # type: ignore[assignment]
    return worker.main(Path(folder), WORK)


def test_a_second_recipe_attaches_instead_of_starting_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FINISHES, "2")
    results: list[dict[str, float]] = []
    # Signal handlers belong to the main thread, so the first start is made by hand.
    first = subprocess.Popen([sys.executable, "-c", FINISHES, str(tmp_path), "2"])
    while not is_locked(tmp_path):
        time.sleep(0.05)
    results.append(run_in_worker(tmp_path, WORK, RUNTIME, several_devices=False))
    assert first.wait() == 0
    assert results == [{"val/mlm_loss": 4.0}]
    assert (tmp_path / "starts").read_text() == "x"


def test_a_failure_is_told_in_the_workers_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FAILS)
    with pytest.raises(BertlineError, match="the text is empty"):
        run_in_worker(tmp_path, WORK, RUNTIME, several_devices=False)


def test_a_killed_worker_is_told_apart_and_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FINISHES, "600")

    def kill_when_running() -> None:
        while read_status(tmp_path).pid is None:
            time.sleep(0.05)
        os.kill(read_status(tmp_path).pid or 0, signal.SIGKILL)

    killer = threading.Thread(target=kill_when_running)
    killer.start()
    with pytest.raises(BertlineError, match="was killed; run the same command again"):
        run_in_worker(tmp_path, WORK, RUNTIME, several_devices=False)
    killer.join()
    use(monkeypatch, FINISHES, "0")
    assert run_in_worker(tmp_path, WORK, RUNTIME, several_devices=False) == {"val/mlm_loss": 4.0}


def started_recipe(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RECIPE, str(folder), STOPS_WHEN_ASKED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_reaches_the_worker_once_and_as_it_is(tmp_path: Path, number: signal.Signals) -> None:
    """A terminal signals its whole process group; a second signal would make training stop without saving."""
    recipe = started_recipe(tmp_path)
    while not (tmp_path / "ready").exists():
        time.sleep(0.05)
    os.killpg(recipe.pid, number)
    output, errors = recipe.communicate(timeout=600)
    name = "SIGINT (Ctrl-C)" if number == signal.SIGINT else number.name
    assert errors == f"stopped by {name}: stopped after 1 {number.name}; run the same command again to resume\n"
    assert output == ""
    assert recipe.returncode == 128 + number


def test_ctrl_c_of_an_attached_recipe_ends_it_and_leaves_the_worker_running(tmp_path: Path) -> None:
    worker = subprocess.Popen([sys.executable, "-c", STOPS_WHEN_ASKED, str(tmp_path)])
    while not (tmp_path / "ready").exists():
        time.sleep(0.05)
    recipe = started_recipe(tmp_path)
    assert recipe.stdout is not None
    assert "attached to the worker" in recipe.stdout.readline()
    os.killpg(recipe.pid, signal.SIGINT)
    output, errors = recipe.communicate(timeout=600)
    assert output == "its record does not end\n"
    assert errors == (
        f"stopped by SIGINT (Ctrl-C); training continues in process {worker.pid} at {tmp_path}. Run the same command "
        f"again to see it, or `kill {worker.pid}` to stop it\n"
    )
    assert recipe.returncode == 130
    assert is_locked(tmp_path)
    worker.terminate()
    assert worker.wait(timeout=600) == 0


def test_a_worker_outlives_its_recipe_and_its_terminal(tmp_path: Path) -> None:
    recipe = subprocess.Popen(
        [sys.executable, "-c", RECIPE, str(tmp_path), STOPS_WHEN_ASKED],
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    while not (tmp_path / "ready").exists():
        time.sleep(0.05)
    os.killpg(recipe.pid, signal.SIGHUP)
    recipe.wait()
    assert is_locked(tmp_path)
    os.kill(read_status(tmp_path).pid or 0, signal.SIGTERM)


def test_several_devices_are_started_by_torchrun(tmp_path: Path) -> None:
    import dataclasses

    two = dataclasses.replace(RUNTIME, num_devices=2)
    command = launching._command(tmp_path, WORK, two, True, Node())
    assert command[1:5] == ["-m", "bertline.orchestration.torchrun", "--standalone", "--nproc-per-node=2"]
    assert "bertline.orchestration.torchrun" not in launching._command(tmp_path, WORK, two, False, Node())


def test_a_worker_is_started_in_the_environment_for_training(tmp_path, monkeypatch):
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    code = "import os, sys; print(os.environ['GOMP_SPINCOUNT'])"
    assert launching._start(tmp_path, [sys.executable, "-c", code], []) == 0
    assert (tmp_path / "log").read_text() == "1000\n"
