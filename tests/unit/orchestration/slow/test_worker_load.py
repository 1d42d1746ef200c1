"""The load is measured where the work is: by the first rank of each node, not by the recipe."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from bertline.foundation.files import write_json
from bertline.foundation.metrics_log import read_metrics
from bertline.foundation.work import Work
from bertline.orchestration import worker
from servers import wait_until

RANKS = [  # (rank, local rank, node)
    (0, 0, "node1"),
    (1, 1, "node1"),
    (2, 0, "node2"),
    (3, 1, "node2"),
]


def test_the_first_rank_of_each_node_samples_to_a_file_of_its_node(
    composed: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = (f"tracking.uri=sqlite:///{tmp_path}/mlflow.db", "tracking.system_metrics=true")
    config = composed("experiment=smoke", *place, "tracking.system_metrics_every_s=0.01")
    files = []

    def train(work: Work) -> dict[str, float]:
        if os.environ["LOCAL_RANK"] == "0":
            file = work.folder / f"system.{os.environ['SLURMD_NODENAME']}.jsonl"
            wait_until(lambda: file.exists() and bool(file.read_text()), every_s=0.01)
        files.append({path.name for path in work.folder.glob("system.*")})
        (work.folder / "result").mkdir(exist_ok=True)
        write_json(work.folder / "result" / "manifest.json", {})
        return {}

    monkeypatch.setattr(worker, "_imported", lambda _: train)
    monkeypatch.chdir(tmp_path)
    frozen = {"stage": "pretrain", "task_name": None, "inputs": {}, "input_marks": {}, "made_of": {"inputs": {}}}
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump({**frozen, "config": config}))
    for rank, local_rank, node in RANKS:
        variables = {"RANK": rank, "WORLD_SIZE": 4, "LOCAL_RANK": local_rank, "SLURM_JOB_NUM_NODES": 2}
        for name, value in {**variables, "SLURMD_NODENAME": node}.items():
            monkeypatch.setenv(name, str(value))
        assert worker.main(folder, "bertline.none:none") == 0
    both = {"system.node1.jsonl", "system.node2.jsonl"}
    assert files == [{"system.node1.jsonl"}, {"system.node1.jsonl"}, both, both]
    for node in ("node1", "node2"):
        rows = list(read_metrics(folder / f"system.{node}.jsonl"))
        assert [row.step for row in rows] == list(range(len(rows)))
        assert all(key.startswith(f"system/{node}/") for row in rows for key in row.metrics)


def test_the_sampled_load_needs_no_package_that_a_bare_image_lacks(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('mlflow', 'pydantic', 'psutil', 'pynvml', 'hydra', 'dvc'): sys.modules[name] = None\n"
        "from pathlib import Path\n"
        "from bertline.foundation.system_load import load_sampled\n"
        "with load_sampled(Path('.'), 1.0): pass"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
