"""The commands of the pages on clusters, run on one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slurm_workspace import Workspace

PAGES = Path(__file__).resolve().parents[2] / "docs"
FENCE = re.compile(r"^```sh\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
# The test cluster has nodes of CPUs, the training is small, and a sweep has no database here.
FOR_SMOKE = {
    "runtime.num_devices=8": "runtime.num_devices=1 runtime.device=cpu runtime.launcher.gpus=false",
    "--save": "tracking.enabled=false pretrain.max_steps=20 pretrain.linear_probe=null --save",
    "sweep@docs_library": "sweep@docs_match",
}


def commands(page: Path) -> list[str]:
    return [line for block in FENCE.findall(page.read_text()) for line in block.splitlines() if line.strip()]


WITH_COMMANDS = [page for page in sorted(PAGES.rglob("*.md")) if commands(page)]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run_on_a_cluster(page, template, tmp_path, cluster):
    workspace = Workspace.copied(template, tmp_path / "workspace", cluster)
    for command in commands(page):
        command = re.sub(r"^dvc repro$", "dvc repro pretrain", command)
        for found, small in FOR_SMOKE.items():
            command = command.replace(found, small)
        workspace.finish("bash", "-c", command)
    jobs = [path.parent.parent.name for path in workspace.folder.glob("runs/*/*/job.json")]
    assert "pretrain" in jobs
