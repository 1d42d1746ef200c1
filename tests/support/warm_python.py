"""Python, DVC and bertline without the seconds of importing: forks of a server that holds the packages.

`programs()` is a folder with `python`, `dvc` and `bertline`, for the front of a PATH. Their processes have the
arguments, environment, folder, files and exit status of real ones, and so have the processes that they start. bertline
itself and the recipes are not in the server, so a clone runs its own code. What differs: a process is not the child of
the one that starts it (a small client is, which passes signals on and which a kill takes along), and variables that are
read when a program is loaded come too late. What is about the start of a process, or its end by force, is tested with
real ones.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import io
import itertools
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

# What any recipe or DVC imports of other people's packages.
PRELOADED = [
    "pytorch_lightning", "pytorch_lightning.strategies", "transformers", "safetensors.torch", "tokenizers",
    "mlflow", "mlflow.store.tracking.sqlalchemy_store", "mlflow.pyfunc", "hydra.main", "hydra._internal.utils",
    "hydra._internal.hydra", "omegaconf", "optuna", "sklearn.linear_model", "sklearn.decomposition", "sklearn.svm",
    "sklearn.naive_bayes", "sklearn.feature_extraction.text", "scipy.stats", "pandas", "pyarrow.parquet", "faiss",
    "bm25s", "pydantic", "yaml", "dvc.cli", "dvc.repo", "dvc.commands.repro", "dvc.commands.status", "dvc.stage.run",
]  # fmt: skip
CLIENT = """#!{python} -IS
import json, os, signal, socket, struct, sys
arguments = sys.argv[1:]
first = next((one for one in arguments if one not in ("-u", "-B")), "-")
if first.startswith("-") and first not in ("-m", "-c"):
    os.execv({python!r}, [{python!r}, *arguments])
numbers = [int(name) for name in os.listdir("/dev/fd")]
def is_open(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
numbers = [number for number in numbers if is_open(number)]
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
told = json.dumps([arguments, dict(os.environ), os.getcwd(), numbers]).encode()
server.sendall(struct.pack("!I", len(told)))
socket.send_fds(server, [b"."], numbers)
server.sendall(told)
pid, = struct.unpack("!i", server.recv(4, socket.MSG_WAITALL))
def pass_on(number, frame):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, pass_on)
for number in numbers:
    os.close(number)
code, = struct.unpack("!i", server.recv(4, socket.MSG_WAITALL))
if code < 0:
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""
PROGRAM = '#!/bin/sh\nexec "{folder}/python" -m {name} "$@"\n'


@functools.cache
def programs() -> Path:
    """The folder with the programs, whose server is running; it ends with this process."""
    folder = Path(tempfile.mkdtemp(prefix="warm-python-"))
    address = str(folder / "socket")
    for name, content in (("python", CLIENT), ("dvc", PROGRAM), ("bertline", PROGRAM)):
        (folder / name).write_text(content.format(python=sys.executable, address=address, folder=folder, name=name))
        (folder / name).chmod(0o755)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYTEST_"))}
    # Its standard input is a pipe whose other end closes with this process.
    server = subprocess.Popen(
        [sys.executable, __file__, str(folder)], stdin=subprocess.PIPE, env=kept, cwd=folder, start_new_session=True
    )
    while not (folder / "socket").exists():
        assert server.poll() is None, "the server of warm processes did not start"
        time.sleep(0.05)
    return folder


def _serve(folder: Path) -> tuple[list[str], dict[str, str], str]:
    """Answer clients until standard input ends; returns in each process that is to run something."""
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # else the first collection of each process would copy all memory
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "new"))
    listener.listen(64)
    (folder / "new").rename(folder / "socket")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who watch a process
    pid = os.fork()  # so that no process that runs something is a fork of one with a thread
    if pid:
        sys.stdin.read()
        shutil.rmtree(folder, ignore_errors=True)
        os.killpg(0, signal.SIGTERM)
    while True:
        connection, _ = listener.accept()
        if os.fork():
            connection.close()
            continue
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        size = struct.unpack("!I", connection.recv(4, socket.MSG_WAITALL))[0]
        _, files, _, _ = socket.recv_fds(connection, 1, 250)
        told = connection.recv(size, socket.MSG_WAITALL)
        arguments, environment, place, numbers = json.loads(told)
        pid = os.fork()
        if pid == 0:
            connection.close()
            _take(files, numbers)
            return arguments, environment, place
        for file in files:
            os.close(file)
        for standard in (0, 1, 2):
            os.close(standard)
        _watch(connection, pid)


def _watch(connection: socket.socket, pid: int) -> None:
    """Tell the client how a process ends; kill the process with its client."""
    connection.sendall(struct.pack("!i", pid))
    ended = threading.Event()

    def end_with_client() -> None:
        if not connection.recv(1) and not ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    threading.Thread(target=end_with_client, daemon=True).start()
    _, status = os.waitpid(pid, 0)
    ended.set()
    with contextlib.suppress(OSError):
        connection.sendall(struct.pack("!i", os.waitstatus_to_exitcode(status)))
    os._exit(0)


def _take(files: list[int], numbers: list[int]) -> None:
    """Give the received files the numbers that they have in the client."""
    import fcntl

    above = max([*numbers, *files]) + 1
    high = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, above) for file in files]
    for file in {*files, 0, 1, 2}:
        os.close(file)
    for file, number in zip(high, numbers, strict=True):
        os.dup2(file, number)
        os.close(file)


def _become(arguments: list[str], environment: dict[str, str], place: str) -> dict[str, Any]:
    """Make this process one that was started by the client's command line; returns what `__main__` executes."""
    options = set(itertools.takewhile(lambda one: one in ("-u", "-B"), arguments))
    sys.dont_write_bytecode = "-B" in options or bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    os.chdir(place)
    os.environ.clear()
    os.environ.update(environment)
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        try:
            stream: Any = open(number, mode, encoding="utf-8", closefd=False, buffering=-1)  # noqa: SIM115
        except OSError:
            stream = None
        if isinstance(stream, io.TextIOWrapper) and mode == "w":
            line_by_line = name == "stderr" or stream.isatty()
            errors = "backslashreplace" if name == "stderr" else "strict"
            stream.reconfigure(line_buffering=line_by_line, write_through="-u" in options, errors=errors)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    return {"arguments": arguments[len(options) :], "path": environment.get("PYTHONPATH", "")}


def _run(arguments: list[str], path: str, program: str) -> None:
    import multiprocessing.process
    import runpy

    import numpy as np

    np.random.seed()  # else all processes would draw the same  # noqa: NPY002
    sys.executable = program
    multiprocessing.set_executable(program)
    # Where a spawned process looks for this one's script.
    multiprocessing.process.ORIGINAL_DIR = str(Path.cwd())  # type: ignore[attr-defined]
    base = [part for part in sys.path[1:] if part]
    sys.path[:] = ["", *[part for part in path.split(os.pathsep) if part], *base]
    importlib.invalidate_caches()
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    match arguments:
        case ["-c", code, *rest]:
            sys.argv = ["-c", *rest]
            exec(compile(code, "<string>", "exec"), main.__dict__)
        case ["-m", module, *rest]:
            sys.path[0] = str(Path.cwd())
            sys.argv = ["-m", *rest]
            runpy._run_module_as_main(module)  # type: ignore[attr-defined]
        case [script, *_]:
            sys.argv = arguments
            sys.path[0] = str(Path(script).resolve().parent)
            main.__file__ = script
            exec(compile(Path(script).read_bytes(), script, "exec"), main.__dict__)


def _end(run: Callable[[], None]) -> NoReturn:
    """Run something and exit as the interpreter does, without taking apart all modules, which takes seconds."""
    code = 0
    try:
        run()
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:
        found = error.__traceback__
        while found is not None and found.tb_frame.f_code.co_filename == __file__:
            found = found.tb_next
        sys.excepthook(type(error), error.with_traceback(found), found)
        code = -signal.SIGINT if type(error) is KeyboardInterrupt else 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 255)


if __name__ == "__main__":
    _folder = Path(sys.argv[1])
    _started = _become(*_serve(_folder))
    _end(lambda: _run(_started["arguments"], _started["path"], str(_folder / "python")))
