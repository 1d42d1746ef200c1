"""The commands of the pages on clusters, run on one."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from ports import free_port
from servers import PostgreSQL
from slurm_cluster import SlurmCluster
from slurm_workspace import Workspace

HOWTO = Path(__file__).resolve().parents[2] / "docs/howto"
FENCE = re.compile(r"^```sh\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
# Here the training is small and on CPUs, and a node has two devices.
SMALL = "runtime.device=cpu tracking.enabled=false pretrain.max_steps=20"
FOR_SMOKE = {
    "runtime.num_devices=8": f"runtime.num_devices=2 {SMALL}",
    "--ntasks-per-node=8": "--ntasks-per-node=2",
    # srun waits for its own processes, and a warm one is not its child.
    "--ntasks-per-node=1 python": f"--ntasks-per-node=1 {sys.executable}",
    "model=base": "model=tiny",
    # The environment is the one that runs the tests.
    "make ": "make -o .venv/.installed ",
}
FOR_JOBS = {
    "runtime.num_devices=8": "runtime.num_devices=1 runtime.launcher.gpus=false",
    "--save": f"{SMALL} --save",
    "sweep_tasks=4": "sweep_tasks=2 sweep.num_trials=4 sweep.encoders=[]",
    "sweep@docs_library": "sweep@docs_match",
}


def commands(page: str, for_here: dict[str, str]) -> list[str]:
    """The commands of a page, as they run here."""
    blocks = FENCE.findall((HOWTO / f"{page}.md").read_text())
    found = [line for block in blocks for line in block.splitlines() if line.strip()]
    for documented, here in for_here.items():
        found = [command.replace(documented, here) for command in found]
    return found


@pytest.fixture
def clone(template: Path, tmp_path: Path, cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A clone on the login node that knows nothing of Slurm."""
    # Clusters of other tests have a job of the same number, and with it the same port.
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    shutil.copytree(template, tmp_path / "clone", symlinks=True)
    (tmp_path / "clone/.venv").symlink_to(sys.prefix)
    workspace = Workspace(tmp_path / "clone", cluster)
    workspace.warm()
    return workspace


def test_the_commands_on_clusters_run(template, tmp_path, cluster, monkeypatch) -> None:
    workspace = Workspace.copied(template, tmp_path / "workspace", cluster)
    workspace.warm()
    with PostgreSQL() as server:
        monkeypatch.setenv("BERTLINE_STUDIES_URL", server.database("studies"))
        for command in commands("cluster", FOR_JOBS):
            workspace.finish("bash", "-c", re.sub(r"^dvc repro$", "dvc repro pretrain", command))
    assert (workspace.run / "job.sh").exists()
    (array,) = (workspace.folder / "runs/sweep@docs_match").glob("*/job.sh")
    assert {"log.task0", "log.task1"} <= {path.name for path in array.parent.glob("log*")}
    assert [len(path.read_text().splitlines()) for path in array.parent.glob("*.starts.jsonl")] == [1, 1]
    assert len(set(workspace.accepted)) == 2


def test_the_doctors_command_on_clusters_runs(clone: Workspace) -> None:
    (command,) = commands("doctor", FOR_SMOKE)
    assert "correct over 4 ranks with gloo" in clone.finish("bash", "-c", command)


def test_the_commands_of_several_machines_run(clone: Workspace) -> None:
    here = f"MASTER_ADDR=127.0.0.1 MASTER_PORT={free_port()}"
    alone, in_step, second = commands("several-machines", {**FOR_SMOKE, "MASTER_ADDR=node0": here})
    for number, command in enumerate((alone, in_step, second)):
        seeded = f"{command} pretrain.seed={number}"  # a run that is finished would not run again
        of_first = seeded.replace("NODE_RANK=1", "NODE_RANK=0")
        first = None if of_first == seeded else clone.start("bash", "-c", of_first)
        clone.finish("bash", "-c", seeded)
        assert first is None or first.wait(600) == 0
    results = list(clone.folder.glob("runs/pretrain/*/result/model.safetensors"))
    assert len(results) == 3
