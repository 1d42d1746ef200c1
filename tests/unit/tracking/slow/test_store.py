"""A store that is made."""

from __future__ import annotations

from pathlib import Path

import tracking_inputs
from bertline.tracking.store import Store
from fork_server import forking


def test_several_processes_may_open_a_new_store_at_once(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/new/mlflow.db"
    processes = [forking().Process(target=tracking_inputs.find_or_create_run, args=(uri, "together")) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    store = Store(uri, "together")
    assert len(store.find_runs({"bertline.pipeline_key": "one"})) == 1
