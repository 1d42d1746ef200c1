"""The load is measured where the work is: by the first rank of each node, not by the recipe."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from bertline.foundation.files import write_json
from bertline.foundation.metrics_log import read_metrics
from bertline.foundation.work import Work
from bertline.orchestration import worker
from bertline.tracking.config import TrackingConfig

RANKS = [  # (rank, local rank, node)
    (0, 0, "node1"),
    (1, 1, "node1"),
    (2, 0, "node2"),
    (3, 1, "node2"),
]


def work(folder: str) -> None:
    """A rank whose work lasts until both nodes have measured."""

    def train(work: Work) -> dict[str, float]:
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline and len(list(work.folder.glob("system.*.jsonl"))) < 2:
            time.sleep(0.05)
        time.sleep(0.2)
        (work.folder / "result").mkdir(exist_ok=True)
        write_json(work.folder / "result" / "manifest.json", {})
        return {}

    worker._imported = lambda _: train  # type: ignore[assignment]
    sys.exit(worker.main(Path(folder), "bertline.none:none"))


def test_the_first_rank_of_each_node_samples_to_a_file_of_its_node(
    composed: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    tracking = TrackingConfig(
        enabled=True,
        uri=f"sqlite:///{tmp_path}/mlflow.db",
        experiment_name="x",
        log_text=False,
        studies_url="sqlite:///runs/studies.db",
        system_metrics=True,
        system_metrics_every_s=0.1,
    )
    config = {**composed("experiment=smoke"), "tracking": dataclasses.asdict(tracking)}
    frozen = {"stage": "pretrain", "task_name": None, "inputs": {}, "input_marks": {}, "made_of": {"inputs": {}}}
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump({**frozen, "config": config}))
    code = "import sys, test_worker_load as t; t.work(sys.argv[1])"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(folder)],
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
                "RANK": str(rank),
                "WORLD_SIZE": "4",
                "LOCAL_RANK": str(local_rank),
                "SLURM_JOB_NUM_NODES": "2",
                "SLURMD_NODENAME": node,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, local_rank, node in RANKS
    ]
    outputs = [rank.communicate(timeout=600)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * 4, outputs
    assert {path.name for path in folder.glob("system*")} == {"system.node1.jsonl", "system.node2.jsonl"}
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
