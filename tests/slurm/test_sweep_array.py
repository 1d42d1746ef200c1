"""A sweep as a job array: its tasks share one study in PostgreSQL, and each unit of work is done once."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from pathlib import Path
from secrets import token_hex

import pytest

from servers import PostgreSQL
from slurm_workspace import Workspace

SWEEP = ("dvc", "repro", "sweep@docs_match")
SMALL = (
    *("pretrain.max_steps=10", "runtime.num_nodes=1", "runtime.launcher.sweep_tasks=2"),
    *("sweep.num_trials=4", "sweep.encoders=[]"),
)


# Without a disturbance: see test_documented.py.
@pytest.mark.parametrize("disturbed", ["leader killed", "member asked to stop"])
def test_the_tasks_of_an_array_share_a_sweep(pretrained, tmp_path, cluster, monkeypatch, disturbed):
    password = f"planted{token_hex(16)}"
    with PostgreSQL(password) as server:
        monkeypatch.setenv("BERTLINE_STUDIES_URL", server.database("studies"))
        workspace = Workspace.copied(pretrained, tmp_path / "workspace", cluster, *SMALL)
        client = workspace.start(*SWEEP)
        folder = workspace.until(lambda: next((workspace.folder / "runs/sweep@docs_match").glob("*/job.sh"))).parent
        disturb(workspace, folder, disturbed)
        assert client.wait(600) == 0, (workspace.folder / "client.log").read_text()[-3000:]
        starts = [len(path.read_text().splitlines()) for path in folder.glob("*.starts.jsonl")]
        assert min(starts) == 1  # a task that was not disturbed is not started again
        assert sum(starts) <= 3
        assert sorted(path.name for path in folder.glob("log*")) == ["log.task0", "log.task1"]
        assert re.search("docs_match, encoder, (trial|seed) ", (workspace.folder / "client.log").read_text())
        events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
        done = Counter((event["arm"], event["kind"], event["number"]) for event in events)
        assert set(done.values()) == {1}
        assert len([event for event in events if event["kind"] == "trial" and event["state"] == "COMPLETE"]) >= 4
        assert (workspace.folder / "artifacts/sweep/docs_match/result.json").exists()
        assert len(set(workspace.accepted)) == 1
        files = [path for path in workspace.folder.rglob("*") if path.is_file() and not path.is_symlink()]
        assert [path for path in files if password.encode() in path.read_bytes()] == []


def disturb(workspace: Workspace, folder: Path, how: str) -> None:
    """Kills the process that leads, or asks the other task to stop, once both are at work."""
    owner = workspace.until(lambda: re.match(r"process (\d+) on \S+ of job (\d+)", (folder / "lock").read_text()))
    workspace.until(lambda: any(log.stat().st_size for log in folder.glob("log.task*")))
    if how == "leader killed":
        os.kill(int(owner[1]), signal.SIGKILL)
        return
    shown = workspace.cluster.ask("squeue", "--noheader", "--array", "--format=%A %F_%K")
    tasks = dict(line.split() for line in shown.splitlines())
    (other,) = (task for job, task in tasks.items() if job != owner[2])
    workspace.cluster.ask("scancel", "--signal=USR1", other)
    log = folder / f"log.task{other.partition('_')[2]}"
    workspace.until(lambda: "lets go of what it had" in log.read_text() or (folder / "result").exists())
