"""Nothing phones home, as the system sees it: what every process connects to, and what stays in a new home."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest

import bertline
from ports import free_port
from servers import wait_until
from tiny import WORDS, write_encoder

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")

_ADDRESS = re.compile(r"sin6?_port=htons\((\d+)\).*?\"([0-9a-fA-F.:]+)\"")
_EVENTS_S = 15  # onnxruntime 1.31 looks up where to send events after about ten seconds
_NOT_SENT_FROM = {
    "CI", "TF_BUILD", "GITHUB_ACTIONS", "GITLAB_CI", "CIRCLECI", "TRAVIS", "JENKINS_URL", "CODEBUILD_BUILD_ID",
    "BUILDKITE", "TEAMCITY_VERSION", "APPVEYOR", "BITBUCKET_BUILD_NUMBER",
}  # fmt: skip
"""Where one of these is set, onnxruntime sends nothing: the tests are to find what it does for a person."""
EVERY_DEPENDENCY = f"""
import importlib, sys, time
import bertline
for name in sys.argv[1:]:
    importlib.import_module(name)
time.sleep({_EVENTS_S})
"""
QUICK = (
    "sweep.num_seeds=2", "sweep.fine_tuning.num_epochs=1", "export.measure_latency=false", "runtime.device=cpu",
    "runtime.num_threads=1", "max_length=24",
)  # fmt: skip


class Traced:
    """Runs commands as a new user of a machine, under `strace`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home, self.log = folder, folder / "home", folder / "calls"
        self.home.mkdir()
        left_out = _NOT_SENT_FROM | set(bertline.NO_TELEMETRY)
        kept = {name: value for name, value in os.environ.items() if name not in left_out}
        self.environment = {**kept, "HOME": str(self.home), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        self.environment |= {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}

    def start(self, *command: str) -> subprocess.Popen[str]:
        traced = ["strace", "-f", "--seccomp-bpf", "-e", "trace=%net", "-A", "-o", str(self.log), *command]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "start_new_session": True}
        return subprocess.Popen(traced, cwd=self.folder, env=self.environment, text=True, **pipes)

    def run(self, *command: str) -> str:
        process = self.start(*command)
        output, _ = process.communicate(timeout=600)
        assert process.returncode == 0, output
        return output

    def reached(self) -> set[str]:
        """Addresses with ports, outside this machine, to which anything was sent; a name server's, wherever it is."""
        calls = [line for line in self.log.read_text(errors="replace").splitlines() if "bind(" not in line]
        found = {match.groups() for line in calls if (match := _ADDRESS.search(line))}
        here = {host for _, host in found if host.startswith("127.") or host in ("::1", "::")}
        return {f"{host}:{port}" for port, host in found if host not in here or port == "53"}


@pytest.fixture
def traced(tmp_path: Path) -> Traced:
    write_encoder(tmp_path / "encoder", seed=9, max_position_embeddings=32)
    rows = "".join(f"{WORDS[i % 2]} {WORDS[2 + i % 19]} {WORDS[21 + i % 17]},{i % 2}\n" for i in range(90))
    (tmp_path / "rows.csv").write_text(f"text,label\n{rows}")
    return Traced(tmp_path)


def test_fine_tuning_exporting_predicting_and_serving_reach_nobody(traced: Traced) -> None:
    output = traced.run("bertline", "finetune", "data=rows.csv", "start_from=encoder", *QUICK)
    export = json.loads(output.splitlines()[-1])["export"]
    traced.run("bertline", "predict", f"model_folder={export}", "input=rows.csv", "output=answers.csv")
    port = free_port()
    traced.environment["MLFLOW_TRACKING_URI"] = "sqlite:///runs/mlflow.db"
    traced.environment["MLFLOW_DISABLE_TELEMETRY"] = "true"  # as the page on serving says
    served = ("-m", "models:/bertline-rows@champion", "--env-manager", "local", "--port", str(port))
    server = traced.start("mlflow", "models", "serve", *served)
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/invocations",
        json.dumps({"dataframe_records": [{"text": WORDS[0]}]}).encode(),
        {"Content-Type": "application/json"},
    )

    def answers() -> bool:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return "label" in answer.read().decode()
        except urllib.error.URLError:
            return False

    try:
        wait_until(lambda: answers() or server.poll() is not None)
        assert server.poll() is None, server.communicate()[0]
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)
    assert traced.reached() == set()
    assert left_in(traced.home) == []


def test_no_dependency_reaches_anybody_when_imported(traced: Traced) -> None:
    declared = {re.match(r"[\w.-]+", each).group().lower() for each in requires("bertline") if "extra ==" not in each}
    modules = [name for name, packages in packages_distributions().items() if declared & {p.lower() for p in packages}]
    names = sorted(name for name in modules if name.isidentifier() and not name.startswith("_"))
    assert {"onnxruntime", "mlflow", "dvc", "datasets", "transformers", "torch"} <= set(names)
    traced.run(sys.executable, "-c", EVERY_DEPENDENCY, *names)
    assert traced.reached() == set()
    assert left_in(traced.home) == []


def test_the_trace_sees_what_reports(traced: Traced) -> None:
    """Without bertline, onnxruntime looks up an address: the tests above can fail."""
    traced.run(sys.executable, "-c", f"import onnxruntime, time; time.sleep({_EVENTS_S})")
    assert traced.reached()


def left_in(home: Path) -> list[str]:
    """Files in a home but caches that say nothing of the user: matplotlib's list of fonts."""
    files = (path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file())
    return sorted(name for name in files if not name.startswith(".cache/matplotlib/"))
