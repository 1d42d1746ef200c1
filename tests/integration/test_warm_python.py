"""The processes of `warm_python`, which most tests of the pipeline use, behave as those of a real interpreter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import warm_python

FACTS = """
import json, os, sys
print(json.dumps([sys.argv, sys.path[0], os.getcwd(), os.environ["WORD"], __name__, sys.stdin.read()]), flush=True)
print("on standard error", file=sys.stderr)
sys.exit(3)
"""
POOL = """
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from helper import double

if __name__ == "__main__":
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        print(list(pool.map(double, range(3))))
"""


@pytest.fixture(params=["real", "warm"])
def python(request: pytest.FixtureRequest) -> str:
    return sys.executable if request.param == "real" else str(warm_python.programs() / "python")


def run(python: str, *words: str, folder: Path, text: str = "", **extra: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), **extra}
    return subprocess.run([python, *words], cwd=folder, env=environment, input=text, capture_output=True, text=True)


def test_script_module_and_code_have_their_arguments_streams_and_status(python: str, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    for path in (tmp_path / "script.py", tmp_path / "inner/module.py"):
        path.write_text(FACTS)
    ways = {
        ("script.py",): ["script.py", "é", str(tmp_path)],
        ("-m", "inner.module"): [str(tmp_path / "inner/module.py"), "é", str(tmp_path)],
        ("-c", FACTS): ["-c", "é", ""],
    }
    for words, (name, argument, first) in ways.items():
        done = run(python, *words, argument, folder=tmp_path, text="given", WORD="ö")
        assert json.loads(done.stdout) == [[name, argument], first, str(tmp_path), "ö", "__main__", "given"], words
        assert (done.stderr, done.returncode) == ("on standard error\n", 3), words


def test_an_error_has_its_traceback_and_a_sentence_its_status(python: str, tmp_path: Path) -> None:
    failed = run(python, "-c", "1 / 0", folder=tmp_path)
    assert failed.returncode == 1
    *_, place, error = failed.stderr.splitlines()
    assert (place, error) == ('  File "<string>", line 1, in <module>', "ZeroDivisionError: division by zero")
    assert len(failed.stderr.splitlines()) == 3
    told = run(python, "-c", "import sys; sys.exit('a sentence')", folder=tmp_path)
    assert (told.returncode, told.stderr) == (1, "a sentence\n")
    assert run(python, "-c", "raise KeyboardInterrupt", folder=tmp_path).returncode == -signal.SIGINT
    subclass = "class Stopped(KeyboardInterrupt): pass\nraise Stopped"
    assert run(python, "-c", subclass, folder=tmp_path).returncode == 1


def test_code_is_that_of_the_folder_in_spawned_processes_too(python: str, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("def double(number):\n    return 2 * number\n")
    (tmp_path / "script.py").write_text(POOL)
    assert run(python, "-B", "script.py", folder=tmp_path).stdout == "[0, 2, 4]\n"
    (tmp_path / "bertline").mkdir()
    (tmp_path / "bertline/__init__.py").write_text("OWN = True\n")
    assert run(python, "-c", "import bertline; print(bertline.OWN)", folder=tmp_path).stdout == "True\n"


def test_a_signal_reaches_it_and_a_kill_ends_it(python: str, tmp_path: Path) -> None:
    code = "import os, pathlib, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(600)"
    for number in (signal.SIGTERM, signal.SIGKILL):
        (tmp_path / "pid").unlink(missing_ok=True)
        process = subprocess.Popen([python, "-c", code], cwd=tmp_path)
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait() == -number
        while is_running(int((tmp_path / "pid").read_text())):
            time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
