"""Data stages on two Ray nodes, one of which is lost, make the bytes that processes of one machine make."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from bertline.foundation.engine import LocalEngine
from bertline.foundation.files import sha256_of_path
from servers import wait_until
from smoke import Run, succeeded
from staged_runs import write_stages

ROOT = Path(__file__).resolve().parents[2]

DRIVER = """
import pathlib, sys
import ray
from bertline.foundation.engine import RayEngine

from staged_runs import write_stages

ray.init(log_to_driver=False)
write_stages(pathlib.Path(sys.argv[1]), RayEngine(), texts=400)
"""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A Ray cluster of one node with one core."""
    utils = pytest.importorskip("ray.cluster_utils", reason="the extra `ray` is not installed")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    made = utils.Cluster(initialize_head=True, head_node_args={"include_dashboard": False})
    yield made
    made.shutdown()


def works(node: Any) -> bool:
    """Whether a task runs on a node: its process then has the task's name."""
    (raylet,) = node.all_processes["raylet"]
    with suppress(psutil.Error):
        workers = psutil.Process(raylet.process.pid).children(recursive=True)
        return any(worker.cmdline()[0].startswith("ray::_whole_or_done") for worker in workers)
    return False


def test_a_lost_node_changes_no_byte(tmp_path: Path, cluster: Any) -> None:
    write_stages(tmp_path / "local", LocalEngine(0), texts=400)
    other = cluster.add_node()
    environment = {**os.environ, "RAY_ADDRESS": cluster.address}
    with subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path / "ray")], env=environment) as driver:
        wait_until(lambda: works(other) or driver.poll() is not None, every_s=0.01)
        cluster.remove_node(other, allow_graceful=False)
        assert driver.poll() is None, "the node is lost before the end"
        assert driver.wait(300) == 0
    for name in ("corpus", "tokenizer", "examples"):
        assert sha256_of_path(tmp_path / "ray" / name) == sha256_of_path(tmp_path / "local" / name)


def commands() -> list[str]:
    """The commands of docs/howto/ray.md."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs/howto/ray.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def test_the_page_s_commands_for_the_pipeline_run_on_a_cluster(pipeline: Path, run: Run, cluster: Any) -> None:
    before = sha256_of_path(pipeline / "artifacts/examples")
    for command in commands():
        if command.startswith(("bertline", "RAY_ADDRESS")):
            again = command.replace("dvc repro", "dvc repro --force --single-item")
            succeeded(run(pipeline, "bash", "-c", again.replace("node0:6379", cluster.address)))
    assert sha256_of_path(pipeline / "artifacts/examples") == before
