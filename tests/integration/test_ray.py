"""Data stages on two Ray nodes, one of which is lost, make the bytes that processes of one machine make."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bertline.foundation.engine import LocalEngine
from bertline.foundation.files import sha256_of_path
from servers import RayNode, wait_until
from staged_runs import write_stages

ROOT = Path(__file__).resolve().parents[2]

DRIVER = """
import pathlib, sys, time
import ray
from bertline.foundation.engine import RayEngine
import pytest

from staged_runs import write_stages

ray.init(log_to_driver=False)
while sum(node["Alive"] for node in ray.nodes()) < 2:
    time.sleep(0.1)
write_stages(pathlib.Path(sys.argv[1]), RayEngine(), texts=400)
"""


def test_a_lost_node_changes_no_byte(tmp_path: Path) -> None:
    write_stages(tmp_path / "local", LocalEngine(0), texts=400)
    paths = os.pathsep.join(path for path in sys.path if path)
    with RayNode() as head, RayNode(head) as other:
        environment = {**os.environ, "RAY_ADDRESS": head.address, "PYTHONPATH": paths}
        driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path / "ray")], env=environment)
        try:
            wait_until(lambda: other.works() or driver.poll() is not None, every_s=0.01)
            other.stop()
            assert driver.poll() is None, "the node is lost before the end"
            assert driver.wait(300) == 0
        finally:
            driver.kill()
            driver.wait()
    for name in ("corpus", "tokenizer", "examples"):
        assert sha256_of_path(tmp_path / "ray" / name) == sha256_of_path(tmp_path / "local" / name)


def commands() -> list[str]:
    """The commands of docs/howto/ray.md."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs/howto/ray.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def test_the_page_s_commands_for_the_pipeline_run_on_a_cluster(
    pipeline: Path, run: Callable[..., subprocess.CompletedProcess[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    before = sha256_of_path(pipeline / "artifacts/examples")
    with RayNode() as head:
        for command in commands():
            if command.startswith(("bertline", "RAY_ADDRESS")):
                again = command.replace("dvc repro", "dvc repro --force --single-item")
                command = again.replace("node0:6379", head.address)
                done = run(pipeline, "bash", "-c", command)
                assert done.returncode == 0, done.stdout + done.stderr
    assert sha256_of_path(pipeline / "artifacts/examples") == before


def test_ray_knows_the_options_that_the_page_names() -> None:
    told = "".join(
        subprocess.check_output([sys.executable, "-m", "ray.scripts.scripts", name, "--help"], text=True)
        for name in ("start", "symmetric-run")
    )
    named = re.findall(r"ray (?:start|symmetric-run) (.*?)(?: -- |$)", "\n".join(commands()), flags=re.MULTILINE)
    options = {word.partition("=")[0] for line in named for word in line.split() if word.startswith("--")}
    assert len(options) > 4 and {option for option in options if option not in told} == set()
