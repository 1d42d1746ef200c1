"""What serving costs: a request of one row to `mlflow models serve`, compared with `predict` in this process.

    python benchmarks/serving_mlflow.py                           # the classifier of the finished default pipeline
    python benchmarks/serving_mlflow.py --root FOLDER --keep      # of a pipeline elsewhere; write the record

The server is the documented one, on the loopback address, with the model that `export` registered last; this process
loads the same folder of artifacts/export. Both compute one row with one thread. Requests and calls alternate, so that
both meet the same load; the medians of --rows of each count, after some that warm up. Each request is a connection of
its own, as curl makes it. The probabilities of both must be equal to 1e-6.

The last line is JSON: `overhead_ms`, asked to be at most 20, is the difference of the medians, `ratio` their quotient;
`load` is the machine's load before and after, with this benchmark in it. The exit status is 1 above 20 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import repository_source
import torch
from records import HERE, Record, add_record_arguments, device_name

import bertline
from bertline.foundation.manifests import versions_of
from bertline.inference.model import LoadedModel

MOST_OVERHEAD_MS = 20.0
TOLERANCE = 1e-6
TEXT = "Return the eigenvalues of a symmetric matrix."
_WARM_UP = 10
_START_S = 180.0


def main() -> int:
    """Measure, print the medians and the JSON line, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=HERE.parent, help="folder of a finished pipeline")
    parser.add_argument("--task", default="docs_library", help="a task that classifies texts")
    parser.add_argument("--rows", type=int, default=100, help="requests, and calls of predict")
    add_record_arguments(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model = bertline.load(str(arguments.root / "artifacts/export" / arguments.task), device="cpu")
    load_before = os.getloadavg()[0]
    with served(arguments.root, f"models:/bertline-{arguments.task}@current") as address:
        figures = compared(address, model, TEXT, rows=arguments.rows)
    figures |= {
        "load": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "cores": len(os.sched_getaffinity(0)),
        "threads": 1,
        "device": device_name(torch.device("cpu")),
    }
    versions = versions_of("torch", "mlflow", "uvicorn")
    print(f"a request {figures['request_ms']} ms, predict {figures['predict_ms']} ms (medians of {arguments.rows})")
    if arguments.keep:
        shown = Record(
            benchmark="serving_mlflow",
            model=arguments.task.replace("_", "-"),
            seq_len=1,
            variant="",
            figures=figures,
            versions=versions,
            arguments=arguments,
            not_recorded=("root",),
        )
        print(f"record: {shown.write(Path(arguments.keep), commit=arguments.commit)}")
    print(json.dumps({**figures, "versions": versions}))
    return int(figures["overhead_ms"] > MOST_OVERHEAD_MS)


def compared(address: str, model: LoadedModel, text: str, *, rows: int) -> dict[str, Any]:
    """Return medians of requests and calls of one row, which alternate, in milliseconds.

    Exits if their probabilities differ by more than `TOLERANCE`.
    """
    difference = largest_difference(asked(address, text), model.predict([text])[0])
    if difference > TOLERANCE:
        sys.exit(f"the server's probabilities differ from those of predict by {difference}: not the same model")
    for _ in range(_WARM_UP):
        asked(address, text), model.predict([text])
    times = [(seconds(lambda: asked(address, text)), seconds(lambda: model.predict([text]))) for _ in range(rows)]
    request_ms, predict_ms = (1000 * statistics.median(of_side) for of_side in zip(*times, strict=True))
    return {
        "overhead_ms": round(request_ms - predict_ms, 2),
        "asked_overhead_ms": MOST_OVERHEAD_MS,
        "ratio": round(request_ms / predict_ms, 2),
        "request_ms": round(request_ms, 2),
        "predict_ms": round(predict_ms, 2),
        "largest_difference": difference,
    }


def largest_difference(answer: dict[str, Any], called: Any) -> float:
    """Return the largest difference between the probabilities of an answer and those of a call, label by label."""
    given = {each["label"]: each["probability"] for each in answer["probabilities"]}
    ours = called.probabilities
    if given.keys() != ours.keys() or answer["predicted"] != called.label:
        sys.exit(f"the server answers {answer['predicted']!r}, predict {called.label!r}: not the same model")
    return max(abs(given[label] - ours[label]) for label in ours)


def asked(address: str, text: str) -> dict[str, Any]:
    """Return the answer to a request of one row."""
    body = json.dumps({"dataframe_records": [{"text": text}]}).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        row: dict[str, Any] = json.load(answer)["predictions"][0]
        return row


def seconds(call: Callable[[], object]) -> float:
    """Return how long a call takes."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


@contextmanager
def served(root: Path, model: str) -> Iterator[str]:
    """Serve a registered model of a finished pipeline on the loopback address; yield the address of its answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["-m", model, "--env-manager", "local", "--host", "127.0.0.1", "--port", str(port)]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    own = {"PATH": path, "OMP_NUM_THREADS": "1", "MLFLOW_TRACKING_URI": "sqlite:///runs/mlflow.db"}
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "models", "serve", *options],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(repository_source.SOURCE), **own},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            _wait(server, f"http://127.0.0.1:{port}/ping", log)
            yield f"http://127.0.0.1:{port}/invocations"
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(30)


def _wait(server: subprocess.Popen[bytes], address: str, log: Any) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            urllib.request.urlopen(address, timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline or server.poll() is not None:
                log.seek(0)
                sys.exit(f"the server did not start:\n{log.read()}")
            time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
